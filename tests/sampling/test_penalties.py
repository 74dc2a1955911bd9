"""The penalties, number by number."""

import pytest
import torch

from flm.sampling.penalties import apply_bias, apply_penalties
from tests.sampling.rows import logits, params, row


def penalised(values: torch.Tensor, **fields: float) -> list[float]:
    window = [0, 2, 0]
    apply_penalties(values, [row(params(**fields), window=window)])
    found: list[float] = values[0].tolist()
    return found


def test_the_worked_example_of_the_documentation() -> None:
    found = penalised(
        logits(2.0, 1.0, -1.0),
        repetition_penalty=2.0,
        presence_penalty=0.5,
        frequency_penalty=0.25,
    )
    assert found == [0.0, 1.0, -2.75]


def test_repetition_divides_above_zero_and_multiplies_below() -> None:
    assert penalised(logits(3.0, 3.0, -3.0), repetition_penalty=1.5) == [2.0, 3.0, -4.5]


def test_below_one_it_rewards() -> None:
    assert penalised(logits(1.0, 1.0, -1.0), repetition_penalty=0.5) == [2.0, 1.0, -0.5]


def test_presence_counts_a_token_once_and_frequency_each_time() -> None:
    assert penalised(logits(0.0, 0.0, 0.0), presence_penalty=1.0) == [-1.0, 0.0, -1.0]
    assert penalised(logits(0.0, 0.0, 0.0), frequency_penalty=1.0) == [-2.0, 0.0, -1.0]


@pytest.mark.parametrize("window", [[], [0, 1, 2]])
def test_neutral_values_change_nothing(window: list[int]) -> None:
    values = logits(2.0, -1.0, 0.5)
    apply_penalties(values, [row(params(), window=window)])
    assert values[0].tolist() == [2.0, -1.0, 0.5]


def test_rows_have_their_own_windows_and_strengths() -> None:
    values = torch.zeros(3, 2)
    rows = [
        row(params(presence_penalty=1.0), window=[0]),
        row(params(presence_penalty=2.0), window=[1]),
        row(params(presence_penalty=9.0, repeat_last_n=0), window=[0, 1]),
    ]
    apply_penalties(values, rows)
    assert values.tolist() == [[-1.0, 0.0], [0.0, -2.0], [0.0, 0.0]]


def test_biases_are_added_and_stay_finite() -> None:
    values = logits(1.0, 1.0, 3e38)
    apply_bias(values, [row(logit_bias=((0, -100.0), (2, 3e38)))])
    assert values[0, :2].tolist() == [-99.0, 1.0]
    assert torch.isfinite(values).all()


def test_frequency_counts_every_time() -> None:
    values = logits(0.0, 0.0)
    of = params(frequency_penalty=0.5, presence_penalty=1.0)
    apply_penalties(values, [row(of, window=[1, 1, 0, 1, 1])])
    assert values.tolist() == [[-1.5, -3.0]]


def test_extremes_stay_finite_numbers() -> None:
    largest = torch.finfo(torch.float32).max
    for repetition in (5e-324, 1e-300, 1e300):
        for penalty in (0.0, 1e308):
            values = logits(largest, 1.0, -0.0, -1.0, -largest)
            of = params(
                repetition_penalty=repetition, presence_penalty=penalty, frequency_penalty=penalty
            )
            apply_penalties(values, [row(of, window=[0, 0, 1, 1, 2, 2, 3, 3, 4, 4])])
            assert torch.isfinite(values).all()


def test_what_the_model_rules_out_stays_out() -> None:
    out = -torch.inf
    values = logits(out, 0.0)
    apply_bias(values, [row(logit_bias=((0, 1e308),))])
    assert values.tolist() == [[out, 0.0]]
    for repetition in (1e-300, 0.5, 2.0):
        of = params(repetition_penalty=repetition, presence_penalty=1e308)
        apply_penalties(values, [row(of, window=[0])])
        assert values.tolist() == [[out, 0.0]]
