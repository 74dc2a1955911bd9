"""The whole order, stage by stage with exact probabilities."""

import math
from typing import Any

import pytest
import torch

from flm.sampling import pipeline
from flm.sampling.batch import NO_TOKEN, Sampled, SamplingRow
from flm.sampling.window import Window
from tests.sampling.rows import STEP, bits, distribution, logits, one, params, row, sample, token


@pytest.fixture(autouse=True, params=["bounded", "wide"])
def _path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here holds for both ways to find a row's candidates."""
    monkeypatch.setattr(pipeline, "MAX_BOUNDED_K", 10**9 if request.param == "bounded" else 0)


def log(*probabilities: float) -> torch.Tensor:
    return logits(*(math.log(p) for p in probabilities))


# --- every stage -------------------------------------------------------------------------------


def test_the_draw_follows_the_softmax() -> None:
    shares = distribution(log(0.5, 0.3, 0.2))
    assert shares == pytest.approx({0: 0.5, 1: 0.3, 2: 0.2}, abs=STEP)


def test_the_draw_takes_the_first_whose_running_sum_reaches_u() -> None:
    values = log(0.25, 0.25, 0.5)  # in order: 2, then 0 and 1 by lowest id
    assert token(values, row(uniform=0.0)) == 2
    assert token(values, row(uniform=0.49)) == 2
    assert token(values, row(uniform=0.51)) == 0
    assert token(values, row(uniform=0.74)) == 0
    assert token(values, row(uniform=0.76)) == 1
    assert token(values, row(uniform=1 - 2**-53)) == 1


def test_a_running_sum_that_is_u_exactly_has_reached_it() -> None:
    values = logits(0.0, 0.0, 0.0, 0.0)
    found = [token(values, row(uniform=uniform)) for uniform in (0.0, 0.25, 0.5, 0.75, 0.8)]
    assert found == [0, 0, 1, 2, 3]
    assert token(values, row(params(top_p=0.5), uniform=0.99)) == 1


def test_temperature_sharpens_what_is_left() -> None:
    shares = distribution(log(0.5, 0.3, 0.2), of=params(temperature=0.5))
    total = 0.25 + 0.09 + 0.04
    expected = {0: 0.25 / total, 1: 0.09 / total, 2: 0.04 / total}
    assert shares == pytest.approx(expected, abs=STEP)


def test_top_k_keeps_exactly_k_the_lowest_ids_of_equals() -> None:
    shares = distribution(logits(0.0, 1.0, 1.0, 1.0, 1.0), of=params(top_k=3))
    assert shares == pytest.approx({1: 1 / 3, 2: 1 / 3, 3: 1 / 3}, abs=STEP)


def test_top_p_keeps_the_shortest_head_that_reaches_it() -> None:
    values = log(0.5, 0.3, 0.2)
    assert set(distribution(values, of=params(top_p=0.49))) == {0}
    assert set(distribution(values, of=params(top_p=0.51))) == {0, 1}
    assert distribution(values, of=params(top_p=0.79)) == pytest.approx(
        {0: 0.625, 1: 0.375}, abs=STEP
    )
    assert set(distribution(values, of=params(top_p=0.0))) == {0}


def test_min_p_is_a_share_of_the_best() -> None:
    values = log(0.5, 0.3, 0.2)
    assert set(distribution(values, of=params(min_p=0.61))) == {0}
    assert set(distribution(values, of=params(min_p=0.59))) == {0, 1}
    assert set(distribution(values, of=params(min_p=1.0))) == {0}
    assert set(distribution(logits(1.0, 1.0, 0.0), of=params(min_p=1.0))) == {0, 1}


def test_top_p_and_min_p_look_at_probabilities_before_temperature() -> None:
    values = log(0.5, 0.3, 0.2)
    hot = params(temperature=50.0, top_p=0.79)
    assert distribution(values, of=hot) == pytest.approx({0: 0.5, 1: 0.5}, abs=0.01)
    assert set(distribution(values, of=params(temperature=50.0, min_p=0.59))) == {0, 1}


def test_top_p_counts_only_what_top_k_left() -> None:
    # Of the two that are left, the first has 0.5 / 0.8 = 0.625.
    values = log(0.5, 0.3, 0.2)
    assert set(distribution(values, of=params(top_k=2, top_p=0.62))) == {0}
    assert set(distribution(values, of=params(top_k=2, top_p=0.63))) == {0, 1}


def test_penalties_come_before_top_k() -> None:
    values = logits(2.0, 1.9, 0.0)
    greedy = params(top_k=1, presence_penalty=0.2)
    assert token(values, row(greedy, window=[0])) == 1
    assert token(values, row(greedy)) == 0


def test_the_mask_comes_before_top_k_and_after_the_penalties() -> None:
    values = logits(5.0, 4.0, 1.0, 0.0)
    allowed = bits([False, False, True, True])
    assert token(values, row(params(top_k=1), mask=allowed)) == 2
    harsh = params(top_k=1, presence_penalty=100.0)
    assert token(values, row(harsh, window=[2], mask=allowed)) == 3
    only = bits([False, False, True, False])
    assert token(values, row(harsh, window=[2], mask=only)) == 2


def test_bans_and_masks_hold_together() -> None:
    values = logits(5.0, 4.0, 1.0)
    allowed = bits([True, True, False])
    assert token(values, row(params(top_k=1), mask=allowed, banned_ids=(0,))) == 1


def test_bias_comes_before_the_penalties() -> None:
    # 1.0 + 1.0 = 2.0, halved by the repetition penalty: 1.0 < 1.5. The other way round the
    # biased token would have 0.5 + 1.0 = 1.5 and win the tie by its lower id.
    values = logits(1.0, 1.5)
    penal = params(top_k=1, repetition_penalty=2.0)
    assert token(values, row(penal, window=[0], logit_bias=((0, 1.0),))) == 1
    assert token(values, row(params(top_k=1), logit_bias=((0, 1.0),))) == 0


def test_logprobs_are_those_of_the_raw_logits() -> None:
    values = log(0.5, 0.3, 0.2)
    harsh = params(top_k=1, presence_penalty=100.0, temperature=0.1)
    result = one(values, row(harsh, window=[0, 1], logit_bias=((1, -50.0),), num_logprobs=2))
    assert result.token_id == 2
    assert result.logprob == pytest.approx(math.log(0.2), abs=1e-6)
    assert dict(result.top) == pytest.approx({0: math.log(0.5), 1: math.log(0.3)}, abs=1e-6)


def test_logprobs_zero_asks_for_the_token_alone() -> None:
    result = one(log(0.5, 0.5), row(params(top_k=1), num_logprobs=0))
    assert result.logprob == pytest.approx(math.log(0.5), abs=1e-6)
    assert result.top == ()


def test_alternatives_of_equal_probability_come_by_lowest_id() -> None:
    result = one(logits(*[1.0] * 50), row(params(top_k=1), num_logprobs=5))
    assert [entry[0] for entry in result.top] == [0, 1, 2, 3, 4]


# --- greedy ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{"temperature": 0.0}, {"top_k": 1}])
def test_greedy_takes_the_best_and_of_equals_the_lowest_id(fields: dict[str, Any]) -> None:
    assert token(logits(0.0, 3.0, 3.0, 1.0), row(params(**fields))) == 1


@pytest.mark.parametrize("fields", [{"temperature": 0.0}, {"top_k": 1}])
def test_greedy_needs_no_number_and_heeds_none(fields: dict[str, Any]) -> None:
    for uniform in (None, 0.0, 0.999):
        assert token(logits(0.0, 1.0), SamplingRow(params(**fields), Window(), uniform)) == 1


def test_greedy_acts_on_what_bias_penalties_mask_and_bans_leave() -> None:
    of = params(temperature=0.0, presence_penalty=2.0)
    values = logits(5.0, 4.5, 4.0, 3.9, 9.0, 9.0)
    allowed = bits([True, True, True, True, True, False])
    fields: dict[str, Any] = {"window": [0, 1], "mask": allowed, "banned_ids": (4,)}
    assert token(values, row(of, **fields)) == 2
    assert token(values, row(of, **fields, logit_bias=((3, 0.2),))) == 3
    # 5 - 2 and 3.9 - 0.9 are equal: the lowest id.
    assert token(values, row(of, **fields, logit_bias=((2, -9.0), (3, -0.9)))) == 0


def test_drawing_without_a_number_is_refused() -> None:
    for top_k in (2, 10**6):
        with pytest.raises(ValueError, match="number to draw with"):
            sample(logits(0.0, 1.0), [SamplingRow(params(top_k=top_k), Window(), None)])


# --- rows that allow nothing -------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, {"top_k": 5}, {"temperature": 0.0}])
def test_bad_rows_give_no_token_and_leave_the_others_alone(fields: dict[str, Any]) -> None:
    good, nan = [1.0, 2.0, 0.0], [1.0, math.nan, 0.0]
    infinite, ruled_out = [1.0, math.inf, 0.0], [-math.inf] * 3
    of = params(**fields)
    values = torch.tensor([nan, good, infinite, ruled_out, good])
    rows = [row(of, 0.0, num_logprobs=1)] * 5
    results = sample(values, rows)
    assert [result.token_id for result in results] == [NO_TOKEN, 1, NO_TOKEN, NO_TOKEN, 1]
    assert results[1] == sample(values[1:2], rows[:1])[0]
    masked = row(of, mask=bits([False, False, False]))
    assert token(values[1:2], masked) == NO_TOKEN
    assert one(values[1:2], row(of, banned_ids=(0, 1, 2), num_logprobs=3)) == Sampled(
        NO_TOKEN, None, ()
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_mask_ban_or_penalty_does_not_hide_what_is_not_a_number(bad: float) -> None:
    values, of = logits(1.0, bad, 0.0), params(top_k=1, presence_penalty=1.0)
    assert token(values, row(of, mask=bits([True, False, True]))) == NO_TOKEN
    assert token(values, row(of, banned_ids=(1,))) == NO_TOKEN
    assert token(values, row(of, window=[1])) == NO_TOKEN
    assert token(values, row(of, logit_bias=((1, -100.0),))) == NO_TOKEN


def test_no_rows_give_no_results() -> None:
    assert sample(torch.empty(0, 5), []) == []


def test_the_logits_are_left_as_they_are() -> None:
    values = logits(1.0, 2.0, 3.0)
    before = values.clone()
    busy = row(
        params(presence_penalty=1.0),
        window=[1],
        logit_bias=((0, 5.0),),
        mask=bits([True, True, False]),
        banned_ids=(1,),
    )
    assert token(values, busy) == 0
    assert torch.equal(values, before)


# --- a batch of all kinds ---------------------------------------------------------------------


def test_every_kind_of_row_in_one_batch_is_as_it_is_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    size = 3000
    rows = [
        row(params(temperature=0.0), num_logprobs=3),
        row(params(top_k=2), 0.99),
        row(params(top_k=500, temperature=30.0), 0.99, num_logprobs=0),
        row(params(top_k=2000, top_p=0.9), 0.6, num_logprobs=20),
        row(params(temperature=4.0), 0.9),
        row(params(top_k=2), 0.99, window=range(size), num_logprobs=5),
        row(params(presence_penalty=3.0, min_p=0.3), 0.7, window=[1, 2, 2], banned_ids=(0,)),
        row(params(top_k=40), 0.99, mask=b"\x15"),
        row(params(top_k=40), 0.5, mask=b""),
        row(params(top_k=3), 0.99, logit_bias=((9, 50.0), (8, 50.0))),
        row(params(top_k=3), 0.5),
    ]
    values = torch.randn(len(rows), size, generator=generator)
    values[-1, 7] = math.nan
    together = sample(values, rows)
    assert together == [one(values[i : i + 1], rows[i]) for i in range(len(rows))]
    assert together[-1].token_id == together[-3].token_id == NO_TOKEN
    assert together[1].token_id == values[1].topk(2).indices[1]
    assert together[-4].token_id in (0, 2, 4)
    assert together[-2].token_id in (8, 9)


# --- extremes ----------------------------------------------------------------------------------

TINY, HUGE = 5e-324, 1e300


@pytest.mark.parametrize("temperature", [TINY, 1e-300, HUGE])
@pytest.mark.parametrize("repetition", [1e-300, 1.0, HUGE])
@pytest.mark.parametrize("penalty", [0.0, 1e308])
@pytest.mark.parametrize("top_k", [3, 10**6])
def test_extreme_settings_still_give_a_token(
    temperature: float, repetition: float, penalty: float, top_k: int
) -> None:
    of = params(
        temperature=temperature,
        repetition_penalty=repetition,
        presence_penalty=penalty,
        frequency_penalty=penalty,
        top_k=top_k,
        top_p=0.5,
    )
    values = logits(3.0, -2.0, 0.0, 1e30, -math.inf)
    for uniform in (0.0, 0.5, 1 - 2**-53):
        found = one(values, row(of, uniform, window=[0, 1, 2, 3, 3], num_logprobs=2))
        assert found.token_id in range(4)
        assert found.logprob is not None
        assert math.isfinite(found.logprob)


@pytest.mark.parametrize("top_k", [3, 10**6])
def test_rows_of_extreme_logits_still_give_their_best(top_k: int) -> None:
    largest = torch.finfo(torch.float32).max
    for values in (logits(-largest, largest, 0.0), logits(-largest, -1e38, -math.inf)):
        for temperature in (TINY, 1.0, 1e30):
            of = params(top_k=top_k, temperature=temperature)
            assert token(values, row(of, 0.3, logit_bias=((1, 1e308),))) == 1
            assert token(values, row(of, 0.3, logit_bias=((0, -1e308),))) == 1


def test_biases_beyond_the_api_range_keep_their_order() -> None:
    values = logits(0.0, 0.0, 0.0)
    greedy = params(top_k=1)
    assert token(values, row(greedy, logit_bias=((2, 1e6), (1, 1e5)))) == 2
    assert token(values, row(greedy, logit_bias=((0, -1e300), (1, -1e300)))) == 2
    assert token(values, row(greedy, logit_bias=((0, -1e300), (1, -1e300), (2, -1e300)))) == 0


def test_a_tiny_temperature_takes_the_best_and_a_huge_one_is_even() -> None:
    values = logits(1.0, 1.5, 1.25)
    assert set(distribution(values, of=params(temperature=TINY))) == {1}
    shares = distribution(values, of=params(temperature=HUGE))
    assert shares == pytest.approx({0: 1 / 3, 1: 1 / 3, 2: 1 / 3}, abs=STEP)


def test_a_token_the_model_rules_out_stays_out_whatever_is_added() -> None:
    values = logits(-math.inf, 0.0)
    assert token(values, row(params(top_k=1), logit_bias=((0, 100.0),))) == 1
