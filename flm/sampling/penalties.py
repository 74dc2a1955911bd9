"""Stages that shift single logits: the bias of the request, and the penalties of its window."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flm.sampling.batch import SamplingRow

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
    found = [
        (index, token_id, count)
        for index, row in enumerate(rows)
        if row.params.has_penalties
        for token_id, count in Counter(row.window).items()
    ]
    if not found:
        return
    amounts = np.array([_amounts(rows[index], count) for index, _, count in found])
    cells = _Cells([index for index, _, _ in found], [token for _, token, _ in found], amounts)
    before = _values(logits, cells)
    _change(logits, cells, before, _penalised(before, amounts))


def _amounts(row: SamplingRow, count: int) -> tuple[float, float]:
    params = row.params
    return (params.repetition_penalty, params.presence_penalty + params.frequency_penalty * count)


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
