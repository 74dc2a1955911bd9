"""From a batch of logits to a token for every row, in one fixed order.

log probabilities (of the raw logits) -> logit_bias -> penalties -> grammar mask and bans ->
top_k -> top_p and min_p -> temperature -> draw. A stage that would change nothing is skipped.
A row's result does not depend on the rows beside it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from flm.sampling.batch import NO_TOKEN, Sampled, SamplingRow
from flm.sampling.candidates import best
from flm.sampling.draw import pick
from flm.sampling.filters import survivors, weights
from flm.sampling.grammar import apply_masks
from flm.sampling.logprobs import token_logprobs
from flm.sampling.penalties import apply_bias, apply_penalties
from flm.sampling.wide import sample_wide
from flm.types import SamplingParams

MAX_BOUNDED_K = 1024
"""Up to this top_k, a row's candidates come from one bounded selection over the batch."""


def sample(logits: Tensor, rows: Sequence[SamplingRow]) -> list[Sampled]:
    """Choose a token for each row of ``logits`` [B, V] (float32; left as they are).

    A row that allows no token, or whose logits are not numbers, gives ``NO_TOKEN``.

    Raises:
        ValueError: a row that is not greedy has no ``uniform``.
    """
    shaped = _shaped(logits, rows)
    token_ids = [NO_TOKEN] * len(rows)
    usable = _usable(logits, shaped)
    greedy = [index for index in usable if rows[index].params.is_greedy]
    bounded = [index for index in usable if _is_bounded(rows[index].params)]
    _choose_greedy(shaped, greedy, token_ids)
    _choose_bounded(shaped, rows, bounded, token_ids)
    for index in sorted(set(usable) - set(greedy) - set(bounded)):
        token_ids[index] = sample_wide(shaped[index], rows[index].params, _uniform(rows[index]))
    return _with_logprobs(logits, rows, token_ids)


def _shaped(logits: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
    """Logits after bias, penalties, mask and bans; the same tensor when no row has any."""
    if not any(map(_is_shaped, rows)):
        return logits
    shaped = logits.clone()
    apply_bias(shaped, rows)
    apply_penalties(shaped, rows)
    apply_masks(shaped, rows)
    return shaped


def _is_shaped(row: SamplingRow) -> bool:
    has_penalties = row.params.has_penalties and len(row.window) > 0
    return has_penalties or bool(row.logit_bias or row.banned_ids) or row.mask is not None


def _usable(logits: Tensor, shaped: Tensor) -> list[int]:
    """Rows with a best token: no NaN, nothing infinitely likely, not everything ruled out."""
    usable = torch.isfinite(shaped.amax(-1))
    if shaped is not logits:
        # A mask can hide what is not a number; the row is no better for it.
        usable &= torch.isfinite(logits.amax(-1))
    return [index for index, ok in enumerate(usable.tolist()) if ok]


def _is_bounded(params: SamplingParams) -> bool:
    return not params.is_greedy and params.top_k <= MAX_BOUNDED_K


def _uniform(row: SamplingRow) -> float:
    if row.uniform is None:
        raise ValueError("a row that is not greedy needs a number to draw with")
    return row.uniform


def _choose_greedy(shaped: Tensor, indices: list[int], token_ids: list[int]) -> None:
    if indices:
        # argmax gives the first of several equal ones: the lowest id.
        for index, token_id in zip(indices, shaped[indices].argmax(-1).tolist(), strict=True):
            token_ids[index] = token_id


def _choose_bounded(
    shaped: Tensor, rows: Sequence[SamplingRow], indices: list[int], token_ids: list[int]
) -> None:
    if not indices:
        return
    widest = max(rows[index].params.top_k for index in indices)
    for index, candidates in zip(indices, best(shaped[indices], widest), strict=True):
        params = rows[index].params
        left = survivors(candidates.head(params.top_k), params)
        token_ids[index] = pick(left, weights(left, params.temperature), _uniform(rows[index]))


def _with_logprobs(
    logits: Tensor, rows: Sequence[SamplingRow], token_ids: list[int]
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
        found = token_logprobs(logits[group], [token_ids[index] for index in group], number)
        for index, entry in zip(group, found, strict=True):
            results[index] = entry
    return results
