import math
from typing import Any

import numpy as np
import pytest

from flm.kernels.build import load_kernels
from flm.kernels.library import Kernels


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    found = load_kernels()
    assert found.kernels is not None, found.problem
    return found.kernels


def expected(row: Any, num_best: int) -> list[int]:
    return sorted(range(len(row)), key=lambda i: (-row[i], i))[:num_best]


@pytest.mark.parametrize("size", [1, 7, 16, 17, 1000, 4099])
@pytest.mark.parametrize("num_best", [1, 2, 15, 40, 1024])
def test_the_best_of_rows(kernels: Kernels, size: int, num_best: int) -> None:
    random = np.random.default_rng(size)
    logits = random.standard_normal((5, size)).astype(np.float32)
    logits[1] = np.round(logits[1])  # many ties
    logits[2] = -logits[2][0]  # all equal
    logits[3] = np.sort(logits[3])  # each better than all before
    logits[4, ::2] = -math.inf
    if size == 1:
        logits[4] = 0.0
    found = kernels.best(logits, num_best)
    for row in range(5):
        want = expected(logits[row].tolist(), min(num_best, size))
        assert found.ids[row].tolist() == want
        assert found.values[row].tolist() == logits[row][want].tolist()
    assert found.usable.all()


@pytest.mark.parametrize("place", [0, 5, 31, 32, 36])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_found(kernels: Kernels, place: int, value: float) -> None:
    logits = np.zeros((3, 37), dtype=np.float32)
    logits[1, place] = value
    assert kernels.best(logits, 3).usable.tolist() == [True, False, True]
    assert kernels.are_numbers(logits).tolist() == [True, False, True]


def test_a_row_of_minus_infinity_has_no_best(kernels: Kernels) -> None:
    logits = np.full((2, 40), -math.inf, dtype=np.float32)
    logits[1, 39] = -1e30
    found = kernels.best(logits, 2)
    assert found.usable.tolist() == [False, True]
    assert found.ids[1].tolist() == [39, 0]
    assert kernels.are_numbers(logits).tolist() == [True, True]
