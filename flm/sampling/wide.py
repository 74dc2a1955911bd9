"""Rows whose candidates are not bounded by a small top_k: exact, and sorted only as far as needed.

The answer mostly lies among the first few hundred tokens, so growing heads of the row are sorted
until one of them must hold it. Sums run over the whole row, so what is not sorted still counts.
"""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from torch import Tensor

from flm.sampling.candidates import Candidates
from flm.sampling.draw import pick
from flm.sampling.filters import weights
from flm.types import SamplingParams

Floats = npt.NDArray[np.float64]
_HEADS = (256, 4096)


def sample_wide(row: Tensor, params: SamplingParams, uniform: float) -> int:
    """The token drawn from a row of finite or -inf logits [V]; see ``filters`` for the rules."""
    logits: Floats = row.double().cpu().numpy()
    possible = np.flatnonzero(~np.isneginf(logits))
    pool = Candidates(logits[possible], possible)
    if params.top_k < len(pool):
        pool = _unsorted_best(pool, params.top_k)
    for head in _growing_heads(pool):
        token_id = _drawn(pool, head, params, uniform)
        if token_id is not None:
            return token_id
    raise AssertionError("the last head is the whole pool")


def _growing_heads(pool: Candidates) -> Iterator[Candidates]:
    for length in _HEADS:
        if length < len(pool):
            yield _sorted(_unsorted_best(pool, length))
    yield _sorted(pool)


def _drawn(
    pool: Candidates, head: Candidates, params: SamplingParams, uniform: float
) -> int | None:
    """The token, or None when it depends on tokens beyond ``head``."""
    is_whole = len(head) == len(pool)
    peak = head.logits[0]
    kept = _num_kept(pool, head, params)
    if kept is not None:
        survivors = head.head(max(kept, 1))
        return pick(survivors, weights(survivors, params.temperature), uniform)
    if params.top_p < 1 or params.min_p > 0:
        return None
    mass = np.cumsum(weights(head, params.temperature))
    total = mass[-1] if is_whole else float(_scaled(pool.logits, peak, params.temperature).sum())
    place = int(np.searchsorted(mass, uniform * total, side="left"))
    return None if place >= len(head) else int(head.token_ids[place])


def _num_kept(pool: Candidates, head: Candidates, params: SamplingParams) -> int | None:
    """How many of the best top_p and min_p keep; None when it is more than ``head`` can tell."""
    peak = head.logits[0]
    limits = [len(pool)] if len(head) == len(pool) else []
    if params.min_p > 0:
        limits.append(int((pool.logits >= peak + math.log(params.min_p)).sum()))
    if params.top_p < 1:
        mass = np.cumsum(weights(head, 1.0))
        total = float(_scaled(pool.logits, peak, 1.0).sum())
        place = int(np.searchsorted(mass, params.top_p * total, side="left"))
        limits.append(place + 1 if place < len(head) else len(pool))
    kept = min(limits, default=len(pool))
    return kept if kept <= len(head) else None


def _scaled(logits: Floats, peak: float, temperature: float) -> Floats:
    with np.errstate(over="ignore", under="ignore"):
        scaled: Floats = np.exp((logits - peak) / temperature)
        return scaled


def _unsorted_best(pool: Candidates, length: int) -> Candidates:
    """The ``length`` best in no order; of equal ones at the cut, those with the lowest ids."""
    cut = np.partition(pool.logits, len(pool) - length)[len(pool) - length]
    above = np.flatnonzero(pool.logits > cut)
    ties = np.flatnonzero(pool.logits == cut)[: length - len(above)]
    chosen = np.concatenate([above, ties])
    return Candidates(pool.logits[chosen], pool.token_ids[chosen])


def _sorted(pool: Candidates) -> Candidates:
    order = np.lexsort((pool.token_ids, -pool.logits))
    return Candidates(pool.logits[order], pool.token_ids[order])
