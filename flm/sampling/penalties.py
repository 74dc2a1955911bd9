"""Stages that shift single logits: the bias of the request, and the penalties of its window."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flm.sampling.batch import SamplingRow
from flm.types import SamplingParams

Floats = npt.NDArray[np.float64]

# Shifted logits stay finite, so extreme settings can neither ban a token nor make it a NaN.
_LIMIT = float(torch.finfo(torch.float32).max)


@dataclass(frozen=True, slots=True)
class _Cells:
    """Single logits of a batch: where they are, [N], and what each is to be changed by, [N, K]."""

    rows: list[int]
    token_ids: list[int]
    amounts: Floats


def apply_bias(logits: Tensor, rows: Sequence[SamplingRow]) -> None:
    """Add each row's ``logit_bias``, in place; ``logits`` is [B, V]."""
    found = [
        (index, token_id, bias)
        for index, row in enumerate(rows)
        for token_id, bias in dict(row.logit_bias).items()
    ]
    if not found:
        return
    amounts = np.array([[bias] for _, _, bias in found])
    cells = _Cells([index for index, _, _ in found], [token for _, token, _ in found], amounts)
    before = _values(logits, cells)
    _change(logits, cells, before, _biased(before, amounts))


def apply_penalties(logits: Tensor, rows: Sequence[SamplingRow]) -> None:
    """Penalise the tokens of each row's window, in place; ``logits`` is [B, V].

    For a token with count c: ``l = l / r if l > 0 else l * r``, then
    ``l -= presence + frequency * c``.
    """
    rows_of: list[int] = []
    token_ids: list[int] = []
    amounts: list[Floats] = []
    for index, row in enumerate(rows):
        counts = row.window.counts
        if row.params.has_penalties and counts:
            rows_of += [index] * len(counts)
            token_ids += counts
            amounts.append(_amounts(row.params, counts))
    if not token_ids:
        return
    cells = _Cells(rows_of, token_ids, np.concatenate(amounts))
    before = _values(logits, cells)
    _change(logits, cells, before, _penalised(before, cells.amounts))


def _amounts(params: SamplingParams, counts: Mapping[int, int]) -> Floats:
    """What each token's logit is multiplied or divided by, and what is taken off: [N, 2]."""
    found = np.empty((len(counts), 2))
    found[:, 0] = params.repetition_penalty
    times = np.fromiter(counts.values(), dtype=np.float64, count=len(counts))
    with np.errstate(over="ignore"):
        found[:, 1] = params.presence_penalty + params.frequency_penalty * times
    return found


def _biased(values: Floats, amounts: Floats) -> Floats:
    return values + amounts[:, 0]


def _penalised(values: Floats, amounts: Floats) -> Floats:
    repetition, shift = amounts[:, 0], amounts[:, 1]
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.where(values > 0, values / repetition, values * repetition)
        # Infinity minus infinity would be no number.
        return np.clip(scaled, -_LIMIT, _LIMIT) - shift


def _values(logits: Tensor, cells: _Cells) -> Floats:
    values: Floats = logits[cells.rows, cells.token_ids].double().cpu().numpy()
    return values


def _change(logits: Tensor, cells: _Cells, before: Floats, changed: Floats) -> None:
    # What the model rules out stays ruled out.
    kept = np.where(np.isneginf(before), before, np.clip(changed, -_LIMIT, _LIMIT))
    logits[cells.rows, cells.token_ids] = torch.from_numpy(kept).to(logits)
