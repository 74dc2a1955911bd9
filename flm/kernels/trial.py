"""A trial of freshly built kernels: a broken compiler must cost speed, never results."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from flm.kernels.library import Kernels
from flm.kernels.packed import Memory, pack_q4, pack_q8
from flm.kernels.reference import linear

_TOLERANCE: Final = 1e-4


def problem_of(kernels: Kernels) -> str | None:
    """None when products come out right, else what is wrong."""
    memory = Memory()
    random = np.random.default_rng(0)
    scales = random.random((48, 3), dtype=np.float32).astype(np.float16)
    nibbles = random.integers(0, 16, (48, 96), dtype=np.uint8)
    bytes_ = random.integers(-128, 128, (48, 96), dtype=np.int8)
    x = random.standard_normal((11, 96), dtype=np.float32)
    for matrix in (pack_q4(nibbles, scales, -scales, memory), pack_q8(bytes_, scales, memory)):
        found = [kernels.linear(matrix, x, threads) for threads in (1, 2)]
        if not _agree(found, linear(x, matrix)):
            return f"computes wrong products of {matrix.format} weights"
    weight = random.standard_normal((23, 96), dtype=np.float32)
    bias = random.standard_normal(23, dtype=np.float32)
    found = [kernels.product(weight, bias, x, threads) for threads in (1, 2)]
    return None if _agree(found, x @ weight.T + bias) else "computes wrong products of floats"


def _agree(found: Sequence[np.ndarray], wanted: np.ndarray) -> bool:
    limit = _TOLERANCE * float(np.abs(wanted).max())
    return all(bool((np.abs(y - wanted) <= limit).all()) for y in found)
