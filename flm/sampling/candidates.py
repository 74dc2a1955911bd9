"""The best tokens of a row, in the one order everything relies on: by logit, ties by lowest id."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flm.kernels.library import Kernels


@dataclass(frozen=True, slots=True)
class Candidates:
    """Tokens from best to worst: ``logits`` float64 [K], ``token_ids`` int64 [K]."""

    logits: npt.NDArray[np.float64]
    token_ids: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.token_ids)

    def head(self, length: int) -> "Candidates":
        """The ``length`` best."""
        return Candidates(self.logits[:length], self.token_ids[:length])


def best(logits: Tensor, num_best: int) -> list[Candidates]:
    """The ``num_best`` best tokens of every row of ``logits`` [B, V].

    One bounded selection over the batch and one copy to the host. torch leaves open which of
    several equal logits it takes, so rows that are cut inside a tie are mended.
    """
    num_best = min(num_best, logits.shape[-1])
    values, token_ids = torch.topk(logits, num_best)  # [B, K] each
    cut = values[:, -1:]
    num_at_cut = torch.cat([(logits == cut).sum(-1, True), (values == cut).sum(-1, True)], 1)
    host_values, host_ids = values.double().cpu().numpy(), token_ids.cpu().numpy()
    return [
        _sorted(host_values[row], host_ids[row])
        if in_row == in_top
        else _mended(logits[row], host_values[row], host_ids[row], int(in_top))
        for row, (in_row, in_top) in enumerate(num_at_cut.tolist())
    ]


def native_best(logits: Tensor, num_best: int, kernels: Kernels) -> list[Candidates | None]:
    """``best`` of rows on the CPU; None for a row with NaN or plus infinity, or nothing else than
    minus infinity."""
    found = kernels.best(logits.numpy(), num_best)
    values, token_ids = found.values.astype(np.float64), found.ids.astype(np.int64)
    return [
        Candidates(values[row], token_ids[row]) if ok else None
        for row, ok in enumerate(found.usable.tolist())
    ]


def _mended(
    row: Tensor,
    values: npt.NDArray[np.float64],
    token_ids: npt.NDArray[np.int64],
    num_at_cut: int,
) -> Candidates:
    cut = values[-1]
    lowest = torch.nonzero(row == cut)[:num_at_cut, 0].cpu().numpy()
    above = values > cut
    return _sorted(
        np.concatenate([values[above], np.full(num_at_cut, cut)]),
        np.concatenate([token_ids[above], lowest]),
    )


def _sorted(values: npt.NDArray[np.float64], token_ids: npt.NDArray[np.int64]) -> Candidates:
    order = np.lexsort((token_ids, -values))
    return Candidates(values[order], token_ids[order])
