"""top_p and min_p: which of a row's candidates may be drawn.

Both look at the probabilities before temperature, among the candidates top_k left.
"""

import math

import numpy as np
import numpy.typing as npt

from flm.sampling.candidates import Candidates
from flm.types import SamplingParams


def survivors(candidates: Candidates, params: SamplingParams) -> Candidates:
    """The head of ``candidates`` (those top_k left) that top_p and min_p keep; at least one."""
    kept = min(_within_top_p(candidates, params.top_p), _within_min_p(candidates, params.min_p))
    return candidates.head(max(kept, 1))


def _within_top_p(candidates: Candidates, top_p: float) -> int:
    """Length of the shortest head whose probability reaches ``top_p``; 1 and above is off."""
    if top_p >= 1:
        return len(candidates)
    mass = np.cumsum(weights(candidates, 1.0))
    return int(np.searchsorted(mass, top_p * mass[-1], side="left")) + 1


def _within_min_p(candidates: Candidates, min_p: float) -> int:
    """How many candidates are at least ``min_p`` times as probable as the best; 0 is off."""
    if min_p <= 0:
        return len(candidates)
    threshold = candidates.logits[0] + math.log(min_p)
    return int(np.searchsorted(-candidates.logits, -threshold, side="right"))


def weights(candidates: Candidates, temperature: float) -> npt.NDArray[np.float64]:
    """Probabilities at a temperature above 0 up to one factor; the best candidate has 1."""
    with np.errstate(over="ignore", under="ignore"):
        result: npt.NDArray[np.float64] = np.exp(
            (candidates.logits - candidates.logits[0]) / temperature
        )
        return result
