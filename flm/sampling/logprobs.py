"""Log probabilities of raw logits over the whole vocabulary, before anything is done to them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from flm.kernels.library import Kernels
from flm.sampling.batch import Sampled
from flm.sampling.candidates import Candidates, best, native_best
from flm.types import LOWEST_LOGPROB


def token_logprobs(
    logits: Tensor, token_ids: Sequence[int], num_top: int, kernels: Kernels | None = None
) -> list[Sampled]:
    """Of every row of ``logits`` [R, V]: the log probability of its token, and the ``num_top``
    best alternatives. A row's result does not depend on the rows beside it, nor on the
    ``kernels``, which find the best faster on the CPU."""
    if not token_ids:
        return []
    own = logits.gather(1, torch.tensor([[token] for token in token_ids], device=logits.device))
    tops = _best(logits, num_top, kernels) if num_top > 0 else [None] * len(token_ids)
    return [
        Sampled(token_id, _logprob(logit, total), _alternatives(top, total))
        for token_id, logit, total, top in zip(
            token_ids, own[:, 0].tolist(), _totals(logits), tops, strict=True
        )
    ]


def _best(logits: Tensor, num_top: int, kernels: Kernels | None) -> Sequence[Candidates | None]:
    if kernels is None or logits.device.type != "cpu":
        return best(logits, num_top)
    found = native_best(logits, num_top, kernels)
    # Which the kernels leave out where nothing is possible.
    return [
        best(logits[row : row + 1], num_top)[0] if one is None else one
        for row, one in enumerate(found)
    ]


def _totals(logits: Tensor) -> list[float]:
    """Logarithms of the sums of ``exp(logits)``, a number for each row [V]."""
    # One by one: torch adds up one row in another order than many, which can change the last bit.
    return torch.stack([torch.logsumexp(row.double(), -1) for row in logits]).tolist()


def _alternatives(top: Candidates | None, total: float) -> tuple[tuple[int, float], ...]:
    if top is None:
        return ()
    pairs = zip(top.token_ids.tolist(), top.logits.tolist(), strict=True)
    return tuple((token_id, _logprob(logit, total)) for token_id, logit in pairs)


def _logprob(logit: float, total: float) -> float:
    # In this order max prefers the constant to the NaN of a row that allows nothing.
    return max(LOWEST_LOGPROB, logit - total)
