"""The whole order, stage by stage with exact probabilities, and against the slow reference."""

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from flm.sampling import pipeline, wide
from flm.sampling.batch import NO_TOKEN, Sampled, SamplingRow
from flm.sampling.pipeline import sample
from flm.types import SamplingParams
from tests.sampling.rows import bits, distribution, logits, one, params, row, token
from tests.support.reference_sampler import reference, shaped

STEP = 1 / 2000 + 1e-9


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
    assert result.top == (
        (0, pytest.approx(math.log(0.5), abs=1e-6)),
        (1, pytest.approx(math.log(0.3), abs=1e-6)),
    )


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


def test_greedy_needs_no_number() -> None:
    assert row(params(temperature=0.0)).uniform is None
    assert token(logits(0.0, 1.0), SamplingRow(params(top_k=1), (), None)) == 1


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
        found = token(values, row(of, uniform, window=[0, 1, 2, 3, 3], num_logprobs=2))
        assert found in range(4)


def test_a_tiny_temperature_takes_the_best_and_a_huge_one_is_even() -> None:
    values = logits(1.0, 1.5, 1.25)
    assert set(distribution(values, of=params(temperature=TINY))) == {1}
    shares = distribution(values, of=params(temperature=HUGE))
    assert shares == pytest.approx({0: 1 / 3, 1: 1 / 3, 2: 1 / 3}, abs=STEP)


def test_a_token_the_model_rules_out_stays_out_whatever_is_added() -> None:
    values = logits(-math.inf, 0.0)
    assert token(values, row(params(top_k=1), logit_bias=((0, 100.0),))) == 1


# --- against the reference ---------------------------------------------------------------------

GRID = st.one_of(
    st.integers(-8, 8).map(lambda n: n / 2),
    st.floats(-30, 30, width=32),
    st.just(-math.inf),
)
POSITIVE = st.one_of(st.floats(0.01, 5.0), st.just(1.0))


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[float], SamplingRow, list[bool]]:
    size = draw(st.integers(1, 24))
    values = draw(st.lists(GRID, min_size=size, max_size=size))
    ids = st.integers(0, size - 1)
    of = SamplingParams(
        temperature=draw(st.one_of(st.just(0.0), POSITIVE)),
        top_k=draw(st.integers(1, 30)),
        top_p=draw(st.one_of(st.just(1.0), st.floats(0, 1))),
        min_p=draw(st.one_of(st.just(0.0), st.floats(0, 1))),
        repetition_penalty=draw(POSITIVE),
        frequency_penalty=draw(st.one_of(st.just(0.0), st.floats(0, 2))),
        presence_penalty=draw(st.one_of(st.just(0.0), st.floats(0, 2))),
        repeat_last_n=draw(st.sampled_from([64, 0, -1])),
    )
    allowed = draw(st.one_of(st.none(), st.lists(st.booleans(), min_size=size, max_size=size)))
    banned = draw(st.lists(ids, max_size=3))
    window = draw(st.lists(ids, max_size=8)) if of.repeat_last_n else []
    bias = draw(st.dictionaries(ids, st.floats(-100, 100, width=16), max_size=3))
    wanted = SamplingRow(
        params=of,
        window=window,
        uniform=None if of.is_greedy else draw(st.floats(0, 1, exclude_max=True)),
        mask=None if allowed is None else bits(allowed),
        banned_ids=tuple(banned),
        logit_bias=tuple(bias.items()),
        num_logprobs=draw(st.one_of(st.none(), st.integers(0, 5))),
    )
    mask = [True] * size if allowed is None else allowed
    return values, wanted, [ok and i not in banned for i, ok in enumerate(mask)]


def is_on_an_edge(values: list[float], boundaries: list[float]) -> bool:
    """Rounding to float32 may order two nearly equal logits, or decide a cut, another way."""
    finite = sorted(value for value in values if math.isfinite(value))
    gaps = (high - low for low, high in itertools.pairwise(finite))
    near = any(
        0 < gap < 1e-5 * max(1.0, abs(high)) for gap, high in zip(gaps, finite[1:], strict=False)
    )
    return near or any(0 < gap < 1e-5 or gap == 0 for gap in boundaries)


@pytest.mark.parametrize("path", ["bounded", "wide", "wide in small heads"])
@given(case=cases())
def test_every_row_is_what_the_reference_says(
    path: str, case: tuple[list[float], SamplingRow, list[bool]]
) -> None:
    values, wanted, allowed = case
    after = shaped(values, wanted.params, wanted.window, wanted.logit_bias, allowed)
    uniform = 0.0 if wanted.uniform is None else wanted.uniform
    expected = reference(after, wanted.params, uniform)
    assume(not is_on_an_edge(after, expected.boundaries))
    with pytest.MonkeyPatch.context() as patch:
        if path != "bounded":
            patch.setattr(pipeline, "MAX_BOUNDED_K", 0)
        if path == "wide in small heads":
            patch.setattr(wide, "_HEADS", (2, 5))
        result = one(torch.tensor([values], dtype=torch.float32), wanted)
    assert result.token_id == (NO_TOKEN if expected.token_id is None else expected.token_id)


@given(batch=st.lists(cases(), min_size=2, max_size=6))
def test_a_row_does_not_depend_on_its_neighbours(
    batch: list[tuple[list[float], SamplingRow, list[bool]]],
) -> None:
    size = max(len(values) for values, _, _ in batch)
    padded = [values + [-math.inf] * (size - len(values)) for values, _, _ in batch]
    rows = [wanted for _, wanted, _ in batch]
    together = sample(torch.tensor(padded, dtype=torch.float32), rows)
    alone: list[Sampled] = [
        one(torch.tensor([values], dtype=torch.float32), wanted)
        for values, wanted in zip(padded, rows, strict=True)
    ]
    assert together == alone
