"""From a batch of logits to a token for every row, in one fixed order.

log probabilities (of the raw logits) -> logit_bias -> penalties -> grammar mask and bans ->
top_k -> top_p and min_p -> temperature -> draw. A stage that would change nothing is skipped.
A row's result does not depend on the rows beside it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from flm.kernels.library import Kernels
from flm.sampling.batch import NO_TOKEN, Sampled, SamplingRow
from flm.sampling.candidates import Candidates, best, native_best
from flm.sampling.draw import pick
from flm.sampling.filters import survivors, weights
from flm.sampling.grammar import apply_masks
from flm.sampling.logprobs import token_logprobs
from flm.sampling.penalties import apply_bias, apply_penalties
from flm.sampling.wide import sample_wide
from flm.types import SamplingParams

MAX_BOUNDED_K = 1024
"""Up to this top_k, a row's candidates come from one bounded selection over the batch."""


class Sampler:
    """Chooses tokens. ``kernels`` make it faster on the CPU; the choice is the same."""

    def __init__(self, kernels: Kernels | None = None) -> None:
        self._kernels = kernels

    def sample(self, logits: Tensor, rows: Sequence[SamplingRow]) -> list[Sampled]:
        """Choose a token for each row of ``logits`` [B, V] (float32; left as they are).

        A row that allows no token, or whose logits are not numbers, gives ``NO_TOKEN``.

        Raises:
            ValueError: a row that is not greedy has no ``uniform``.
        """
        shaped = self._shaped(logits, rows)
        token_ids = [NO_TOKEN] * len(rows)
        bounded = [index for index, row in enumerate(rows) if _is_bounded(row.params)]
        found = self._candidates(logits, shaped, rows, bounded)
        for index, candidates in zip(bounded, found, strict=True):
            if candidates is not None:
                token_ids[index] = _choose(candidates, rows[index])
        wide = sorted(set(range(len(rows))) - set(bounded))
        for index in _usable(logits, shaped, wide):
            row = rows[index]
            token_ids[index] = sample_wide(shaped[index], row.params, _uniform(row))
        return self._with_logprobs(logits, rows, token_ids)

    def are_numbers(self, logits: Tensor) -> list[bool]:
        """Whether each row of ``logits`` [B, V] has neither NaN nor plus infinity in it."""
        if self._kernels is not None and logits.device.type == "cpu":
            fine: list[bool] = self._kernels.are_numbers(logits.numpy()).tolist()
            return fine
        # One sum a row is cheap, and it is finite only if everything in it is.
        if bool(logits.sum(dim=1).isfinite().all()):
            return [True] * len(logits)
        found: list[bool] = (~(logits.isnan() | logits.isposinf()).any(dim=1)).tolist()
        return found

    def logprobs(self, logits: Tensor, token_ids: Sequence[int], num_top: int) -> list[Sampled]:
        """Of every row of ``logits`` [R, V]: the log probability of its token, and the ``num_top``
        best alternatives."""
        return token_logprobs(logits, token_ids, num_top, self._kernels)

    def _shaped(self, logits: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
        """Logits after bias, penalties, mask and bans; the same tensor when no row has any."""
        if not any(map(_is_shaped, rows)):
            return logits
        shaped = logits.clone()
        apply_bias(shaped, rows)
        apply_penalties(shaped, rows)
        apply_masks(shaped, rows, self._kernels)
        return shaped

    def _candidates(
        self, logits: Tensor, shaped: Tensor, rows: Sequence[SamplingRow], indices: list[int]
    ) -> list[Candidates | None]:
        """The best tokens of some rows; None for a row that is not usable."""
        if not indices:
            return []
        widest = max(_num_candidates(rows[index].params) for index in indices)
        if len(indices) < len(rows):
            is_same = shaped is logits
            logits = logits[indices]
            shaped = logits if is_same else shaped[indices]
        if self._kernels is not None and logits.device.type == "cpu":
            found = native_best(shaped, widest, self._kernels)
            # A mask can hide what is not a number; the row is no better for it.
            fine = [True] * len(found) if shaped is logits else self.are_numbers(logits)
            return [one if ok else None for one, ok in zip(found, fine, strict=True)]
        usable = set(_usable(logits, shaped, range(len(indices))))
        return [one if at in usable else None for at, one in enumerate(best(shaped, widest))]

    def _with_logprobs(
        self, logits: Tensor, rows: Sequence[SamplingRow], token_ids: list[int]
    ) -> list[Sampled]:
        results = [Sampled(token_id, None, ()) for token_id in token_ids]
        asked = {
            index: row.num_logprobs
            for index, row in enumerate(rows)
            if row.num_logprobs is not None and token_ids[index] != NO_TOKEN
        }
        # One call per number of alternatives, so that no row pays for more than it asks.
        for number in sorted(set(asked.values())):
            group = [index for index, wanted in asked.items() if wanted == number]
            own = [token_ids[index] for index in group]
            found = self.logprobs(logits[group], own, number)
            for index, entry in zip(group, found, strict=True):
                results[index] = entry
        return results


def _is_shaped(row: SamplingRow) -> bool:
    has_penalties = row.params.has_penalties and len(row.window) > 0
    return has_penalties or bool(row.logit_bias or row.banned_ids) or row.mask is not None


def _is_bounded(params: SamplingParams) -> bool:
    return params.is_greedy or params.top_k <= MAX_BOUNDED_K


def _num_candidates(params: SamplingParams) -> int:
    return 1 if params.is_greedy else params.top_k


def _usable(logits: Tensor, shaped: Tensor, indices: Sequence[int]) -> list[int]:
    """Those of some rows with a best token: no NaN, nothing infinitely likely, not everything
    ruled out."""
    if not indices:
        return []
    usable = torch.isfinite(shaped.amax(-1))
    if shaped is not logits:
        usable &= torch.isfinite(logits.amax(-1))
    fine = usable.tolist()
    return [index for index in indices if fine[index]]


def _choose(candidates: Candidates, row: SamplingRow) -> int:
    params = row.params
    if params.is_greedy:
        return int(candidates.token_ids[0])
    left = survivors(candidates.head(params.top_k), params)
    return pick(left, weights(left, params.temperature), _uniform(row))


def _uniform(row: SamplingRow) -> float:
    if row.uniform is None:
        raise ValueError("a row that is not greedy needs a number to draw with")
    return row.uniform
