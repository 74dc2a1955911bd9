"""Chance: a generator for each request, and the choice of one candidate by one number."""

import numpy as np
import numpy.typing as npt

from flm.sampling.candidates import Candidates

_SEED_SPACE = 1 << 64


class RequestRandom:
    """The numbers of one request. ``seed`` is in 0..2^64-1; one number per sampled token."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def next_uniform(self) -> float:
        """The next number in [0, 1)."""
        return float(self._generator.random())


class ModelRandom:
    """The running stream that requests without a seed draw theirs from. Without ``seed`` it
    starts somewhere new each time."""

    def __init__(self, seed: int | None) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def next_seed(self) -> int:
        """The next seed, in 0..2^64-1."""
        return int(self._generator.integers(_SEED_SPACE - 1, endpoint=True, dtype=np.uint64))


def pick(candidates: Candidates, weights: npt.NDArray[np.float64], uniform: float) -> int:
    """The first candidate, best first, whose running share of the weights reaches ``uniform``."""
    mass = np.cumsum(weights)
    place = int(np.searchsorted(mass, uniform * mass[-1], side="left"))
    # Rounding can leave the last running sum a bit below the product.
    return int(candidates.token_ids[min(place, len(candidates) - 1)])
