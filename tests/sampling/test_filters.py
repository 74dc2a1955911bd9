"""top_p and min_p on candidates that are already in order."""

import math

import numpy as np
import pytest

from flm.sampling.candidates import Candidates
from flm.sampling.filters import survivors, weights
from tests.sampling.rows import params


def candidates(*probabilities: float) -> Candidates:
    logits = np.log(np.array(probabilities))
    return Candidates(logits, np.arange(len(probabilities)))


def num_kept(of: Candidates, **fields: float) -> int:
    return len(survivors(of, params(**fields)))


EIGHTHS = candidates(0.5, 0.25, 0.125, 0.125)


@pytest.mark.parametrize(
    ("top_p", "expected"),
    [(0.0, 1), (5e-324, 1), (0.49, 1), (0.51, 2), (0.74, 2), (0.76, 3), (0.9, 4), (1.0, 4)],
)
def test_top_p_is_the_shortest_head_that_reaches_it(top_p: float, expected: int) -> None:
    assert num_kept(EIGHTHS, top_p=top_p) == expected


def test_top_p_reached_exactly_needs_no_more() -> None:
    assert num_kept(Candidates(np.zeros(4), np.arange(4)), top_p=0.5) == 2


def test_top_p_normalises_what_it_is_given() -> None:
    assert num_kept(EIGHTHS.head(2), top_p=0.66) == 1
    assert num_kept(EIGHTHS.head(2), top_p=0.67) == 2


@pytest.mark.parametrize(
    ("min_p", "expected"),
    [(0.0, 4), (5e-324, 4), (0.24, 4), (0.26, 2), (0.49, 2), (0.51, 1), (1.0, 1)],
)
def test_min_p_is_a_share_of_the_best(min_p: float, expected: int) -> None:
    assert num_kept(EIGHTHS, min_p=min_p) == expected


def test_min_p_of_one_keeps_every_token_as_good_as_the_best() -> None:
    assert num_kept(candidates(0.4, 0.4, 0.2), min_p=1.0) == 2


def test_the_stricter_of_the_two_decides() -> None:
    assert num_kept(EIGHTHS, top_p=0.51, min_p=0.51) == 1
    assert num_kept(EIGHTHS, top_p=0.49, min_p=0.26) == 1
    assert num_kept(EIGHTHS, top_p=0.76, min_p=0.26) == 2


def test_min_p_does_not_shorten_what_top_p_counts() -> None:
    # Of the two that min_p keeps the first alone has 2/3, but top_p looks at all four.
    assert num_kept(EIGHTHS, top_p=0.6, min_p=0.26) == 2


def test_temperature_changes_neither() -> None:
    for temperature in (5e-324, 0.1, 1e300):
        assert num_kept(EIGHTHS, top_p=0.74, temperature=temperature) == 2
        assert num_kept(EIGHTHS, min_p=0.26, temperature=temperature) == 2


def test_weights_are_relative_to_the_best() -> None:
    assert weights(EIGHTHS, 1.0).tolist() == pytest.approx([1, 0.5, 0.25, 0.25])
    assert weights(EIGHTHS, 0.5).tolist() == pytest.approx([1, 0.25, 0.0625, 0.0625])


def test_extreme_temperatures_act_as_their_limits() -> None:
    of = Candidates(np.array([3e38, 3e38, 0.0, -3e38, -math.inf]), np.arange(5))
    assert weights(of, 5e-324).tolist() == [1, 1, 0, 0, 0]
    assert weights(of, 1e300).tolist() == [1, 1, 1, 1, 0]
