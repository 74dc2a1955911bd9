"""Rows whose candidates are not bounded by a small top_k: exact, and never sorted.

Every stage that cuts or draws asks the same question: going from the best token down, at which
one does a running sum reach a target? The sum is of ones for top_k, of probabilities for top_p
and the draw. A radix selection answers it in two passes over the row, whatever the row holds.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from flm.types import SamplingParams

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.int64]
Ranks = npt.NDArray[np.uint32]
_HALF_BITS = np.uint32(16)
_LOWER_HALF = np.uint32(0xFFFF)
_SMALLEST = 5e-324


@dataclass(frozen=True, slots=True)
class _Digit:
    """Half a rank, and what of the target the tokens that share it still have to reach."""

    value: int
    target: float


@dataclass(frozen=True, slots=True)
class _Tokens:
    """Some tokens of a row, lowest id first, [N] each."""

    ids: Ids
    logits: Floats
    ranks: Ranks

    def only(self, kept: Bools) -> "_Tokens":
        places = np.flatnonzero(kept)
        return _Tokens(self.ids[places], self.logits[places], self.ranks[places])


def sample_wide(row: Tensor, params: SamplingParams, uniform: float) -> int:
    """The token drawn from a row of finite or -inf logits [V]; see ``filters`` for the rules."""
    values: npt.NDArray[np.float32] = row.float().cpu().numpy()
    tokens = _Tokens(np.arange(len(values)), values.astype(np.float64), _ranks(values))
    # Each stage gives its work on to the next as small as it leaves it.
    left = _kept(tokens, params)
    place = _drawn(left.ranks, _weights(left.logits, params.temperature), uniform)
    return int(left.ids[place])


def _ranks(logits: npt.NDArray[np.float32]) -> Ranks:
    """Numbers in the opposite order of the logits, equal for equal ones."""
    # Adding zero makes -0.0 the same bits as 0.0.
    bits = (logits + np.float32(0)).view(np.uint32)
    # As integers, negative floats already run from the best to the worst, behind all others;
    # the others run the wrong way.
    bits ^= (logits >= 0) * np.uint32(0x7FFFFFFF)
    return bits


def _kept(tokens: _Tokens, params: SamplingParams) -> _Tokens:
    """What top_k leaves, and of that top_p and min_p. Tokens at -inf may be among it; they have
    no weight."""
    if params.top_k < len(tokens.ids):
        ones = np.ones(len(tokens.ids))
        tokens = tokens.only(_down_to(tokens.ranks, _reaching(tokens.ranks, ones, params.top_k)))
    if params.top_p < 1:
        last = _drawn(tokens.ranks, _weights(tokens.logits, 1.0), params.top_p)
        tokens = tokens.only(_down_to(tokens.ranks, last))
    if params.min_p > 0:
        tokens = tokens.only(tokens.logits >= tokens.logits.max() + math.log(params.min_p))
    return tokens


def _down_to(ranks: Ranks, last: int) -> Bools:
    """Which tokens are at least as good as that at ``last``; of equal ones, the first are
    better."""
    kept: Bools = ranks <= ranks[last]
    kept[last + 1 :] &= ranks[last + 1 :] < ranks[last]
    return kept


def _weights(logits: Floats, temperature: float) -> Floats:
    """Probabilities up to one factor; the best token has 1."""
    weights: Floats = logits - logits.max()
    with np.errstate(over="ignore", under="ignore"):
        # In place: fresh memory for a row costs more than the arithmetic.
        weights /= temperature
        np.exp(weights, out=weights)
    return weights


def _drawn(ranks: Ranks, weights: Floats, share: float) -> int:
    """The place of the first token, best first, whose running share of the weights reaches
    ``share``."""
    return _reaching(ranks, weights, share * float(weights.sum()))


def _reaching(ranks: Ranks, weights: Floats, target: float) -> int:
    """The place of the first token, best first, at which the running sum of weights reaches
    ``target``.

    Finds the upper half of its rank, then the lower, then the token among its equals.
    """
    # Above 0, a target is never first reached by a token without weight.
    target = max(target, _SMALLEST)
    upper = ranks >> _HALF_BITS
    first = _narrowed(upper, weights, target)
    inside = np.flatnonzero(upper == first.value)
    lower = ranks[inside] & _LOWER_HALF
    second = _narrowed(lower, weights[inside], first.target)
    equals = inside[lower == second.value]
    return int(equals[_place_of(weights[equals].cumsum(), second.target)])


def _narrowed(digits: Ranks, weights: Floats, target: float) -> _Digit:
    """The first digit at which the weights of it and of all lower ones reach ``target``."""
    running: Floats = np.bincount(digits, weights).cumsum()
    digit = _place_of(running, target)
    return _Digit(digit, target if digit == 0 else target - float(running[digit - 1]))


def _place_of(running: Floats, target: float) -> int:
    # Rounding can leave the last running sum a bit below the target.
    return int(np.searchsorted(running, min(target, float(running[-1])), side="left"))
