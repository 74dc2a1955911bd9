"""The best tokens of a row: the order, and which of several equal ones make the cut."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from flm.sampling.candidates import best
from tests.sampling.rows import logits

TIES = st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 0.5, 3e38])


def ids(values: Tensor, num_best: int) -> list[list[int]]:
    return [candidates.token_ids.tolist() for candidates in best(values, num_best)]


def test_best_first_and_of_equals_the_lowest_id() -> None:
    assert ids(logits(1.0, 3.0, 2.0, 3.0), 4) == [[1, 3, 2, 0]]


@pytest.mark.parametrize("num_best", [1, 2, 3, 4])
def test_a_cut_inside_a_tie_keeps_the_lowest_ids(num_best: int) -> None:
    assert ids(logits(0.0, 1.0, 5.0, 1.0, 1.0), num_best) == [[2, 1, 3, 4][:num_best]]


def test_a_cut_inside_a_wide_tie_keeps_the_lowest_ids() -> None:
    values = torch.zeros(2, 10_000)
    values[1, 9_999] = 1.0
    assert ids(values, 40) == [list(range(40)), [9_999, *range(39)]]


def test_zero_and_minus_zero_are_equal() -> None:
    assert ids(logits(-0.0, 0.0, -0.0, 0.0), 3) == [[0, 1, 2]]


def test_more_than_there_are_gives_all() -> None:
    assert ids(logits(1.0, 2.0), 50) == [[1, 0]]


def test_a_head_is_the_best_of_the_best() -> None:
    head = best(logits(1.0, 3.0, 2.0), 3)[0].head(2)
    assert (head.token_ids.tolist(), head.logits.tolist()) == ([1, 2], [3.0, 2.0])


@given(
    rows=st.integers(1, 12).flatmap(
        lambda size: st.lists(st.lists(TIES, min_size=size, max_size=size), min_size=1, max_size=4)
    ),
    num_best=st.integers(1, 14),
)
def test_every_row_is_what_sorting_gives(rows: list[list[float]], num_best: int) -> None:
    for row, candidates in zip(rows, best(torch.tensor(rows), num_best), strict=True):
        expected = sorted(range(len(row)), key=lambda token: (-row[token], token))[:num_best]
        assert candidates.token_ids.tolist() == expected
        assert candidates.logits.tolist() == pytest.approx([row[token] for token in expected])
