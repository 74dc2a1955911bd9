"""A trial of freshly built kernels: a broken compiler must cost speed, never results."""

from typing import Final

import numpy as np

from flm.kernels.library import Kernels
from flm.kernels.packed import Memory, PackedMatrix, pack_q4, pack_q8
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
        if not _agrees(kernels, matrix, x):
            return f"computes wrong products of {matrix.format} weights"
    return None


def _agrees(kernels: Kernels, matrix: PackedMatrix, x: np.ndarray) -> bool:
    wanted = linear(x, matrix)
    limit = _TOLERANCE * float(np.abs(wanted).max())
    found = (kernels.linear(matrix, x, threads) for threads in (1, 2))
    return all(bool((np.abs(y - wanted) <= limit).all()) for y in found)
