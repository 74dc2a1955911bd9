"""Stages that shift single logits: the bias of the request, and the penalties of its window."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flm.sampling.batch import SamplingRow

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Shifted logits stay finite, so extreme settings can neither ban a token nor make it a NaN.
_LIMIT = float(torch.finfo(torch.float32).max)


@dataclass(frozen=True, slots=True)
class _Cells:
    """Single logits of a batch: where they are, [N], and what each is to be changed by, [N, K]."""

    rows: Ints
    token_ids: Ints
    amounts: Floats

    def places(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Indices of the logits, [N] each."""
        device = logits.device
        return torch.from_numpy(self.rows).to(device), torch.from_numpy(self.token_ids).to(device)


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
    places = np.array([(index, token_id) for index, token_id, _ in found], dtype=np.int64)
    cells = _Cells(places[:, 0], places[:, 1], amounts)
    before = _values(logits, cells)
    _change(logits, cells, before, _biased(before, amounts))


def apply_penalties(logits: Tensor, rows: Sequence[SamplingRow]) -> None:
    """Penalise the tokens of each row's window, in place; ``logits`` is [B, V].

    For a token with count c: ``l = l / r if l > 0 else l * r``, then
    ``l -= presence + frequency * c``.
    """
    found = [
        _cells_of(index, row)
        for index, row in enumerate(rows)
        if row.params.has_penalties and len(row.window) > 0
    ]
    if not found:
        return
    cells = _Cells(
        np.concatenate([one.rows for one in found]),
        np.concatenate([one.token_ids for one in found]),
        np.concatenate([one.amounts for one in found]),
    )
    before = _values(logits, cells)
    _change(logits, cells, before, _penalised(before, cells.amounts))


def _cells_of(index: int, row: SamplingRow) -> _Cells:
    """Of one row: each token's logit is multiplied or divided by the first amount, and the second
    is taken off."""
    params, counts = row.params, row.window.counts
    size = len(counts)
    amounts = np.empty((size, 2))
    amounts[:, 0] = params.repetition_penalty
    times = np.fromiter(counts.values(), dtype=np.float64, count=size)
    with np.errstate(over="ignore"):
        amounts[:, 1] = params.presence_penalty + params.frequency_penalty * times
    token_ids = np.fromiter(counts, dtype=np.int64, count=size)
    return _Cells(np.full(size, index), token_ids, amounts)


def _biased(values: Floats, amounts: Floats) -> Floats:
    return values + amounts[:, 0]


def _penalised(values: Floats, amounts: Floats) -> Floats:
    repetition, shift = amounts[:, 0], amounts[:, 1]
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.where(values > 0, values / repetition, values * repetition)
        # Infinity minus infinity would be no number.
        return np.clip(scaled, -_LIMIT, _LIMIT) - shift


def _values(logits: Tensor, cells: _Cells) -> Floats:
    values: Floats = logits[cells.places(logits)].double().cpu().numpy()
    return values


def _change(logits: Tensor, cells: _Cells, before: Floats, changed: Floats) -> None:
    # What the model rules out stays ruled out.
    kept = np.where(np.isneginf(before), before, np.clip(changed, -_LIMIT, _LIMIT))
    logits[cells.places(logits)] = torch.from_numpy(kept).to(logits)
