"""The sampler against a slow reference, and every row against itself among others."""

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch import Tensor

from flm.sampling import pipeline
from flm.sampling.batch import NO_TOKEN, SamplingRow
from flm.sampling.window import Window
from flm.types import LOWEST_LOGPROB, SamplingParams
from tests.sampling.rows import bits, params, sample
from tests.support.reference_sampler import LIMIT, Reference, logprobs, reference, shaped

# Few distinct values, so that ties and tokens that are ruled out are common.
LOGITS = st.one_of(
    st.integers(-6, 6).map(lambda n: n / 2),
    st.sampled_from([-math.inf, -0.0, LIMIT, -LIMIT, 1e-45, -1e-45]),
    st.floats(-40, 40, width=32),
)
TEMPERATURES = st.one_of(
    st.sampled_from([0.0, 1.0, 5e-324, 1e-300, 1e300]), st.floats(0.05, 20), st.floats(0, 1e308)
)
SHARES = st.one_of(st.sampled_from([0.0, 5e-324, 0.5, 1.0]), st.floats(0, 1))
REPETITIONS = st.one_of(
    st.sampled_from([1.0, 5e-324, 1e-300, 1e300]), st.floats(0.25, 4), st.floats(1e-308, 1e308)
)
PENALTIES = st.one_of(st.sampled_from([0.0, 0.5, 1.0, 1e308]), st.floats(0, 2))
PARAMS = st.builds(
    SamplingParams,
    temperature=TEMPERATURES,
    top_k=st.one_of(st.integers(1, 30), st.just(2**62)),
    top_p=SHARES,
    min_p=SHARES,
    repetition_penalty=REPETITIONS,
    frequency_penalty=PENALTIES,
    presence_penalty=PENALTIES,
    repeat_last_n=st.sampled_from([-1, 0, 64]),
)
BIASES = st.one_of(st.floats(-100, 100, width=16), st.sampled_from([1e30, -1e308, 1e308]))


@dataclass(frozen=True)
class Case:
    """A row of logits, what is wanted of it, and which tokens its mask and bans allow."""

    logits: list[float]
    row: SamplingRow
    allowed: list[bool]

    @property
    def tensor(self) -> Tensor:
        return torch.tensor([self.logits], dtype=torch.float32)

    def expected(self) -> Reference:
        row = self.row
        after = shaped(self.logits, row.params, list(row.window), row.logit_bias, self.allowed)
        return reference(after, row.params, 0.0 if row.uniform is None else row.uniform)


@st.composite
def cases(draw: st.DrawFn, size: int | None = None) -> Case:
    size = draw(st.integers(1, 24)) if size is None else size
    of = draw(PARAMS)
    ids = st.integers(0, size - 1)
    # A mask may be shorter than the vocabulary, which allows nothing beyond it, or longer.
    mask = draw(st.one_of(st.none(), st.lists(st.booleans(), max_size=size + 9)))
    banned = draw(st.one_of(st.just([]), st.lists(ids, max_size=3)))
    row = SamplingRow(
        params=of,
        window=Window(token_ids=draw(st.lists(ids, max_size=12))),
        uniform=None if of.is_greedy else draw(st.floats(0, 1, exclude_max=True)),
        mask=None if mask is None else bits(mask),
        banned_ids=tuple(banned),
        logit_bias=tuple(draw(st.dictionaries(ids, BIASES, max_size=3)).items()),
        num_logprobs=draw(st.one_of(st.none(), st.integers(0, 30))),
    )
    within = [True] * size if mask is None else (mask + [False] * size)[:size]
    allowed = [ok and token not in banned for token, ok in enumerate(within)]
    return Case(draw(st.lists(LOGITS, min_size=size, max_size=size)), row, allowed)


@pytest.mark.parametrize("max_bounded_k", [10**9, 0])
@given(case=cases())
@example(case=Case([0.0, -0.0, 0.0], SamplingRow(params(top_p=0.4), Window(), 0.9), [True] * 3))
@example(case=Case([1.0, -0.0, 0.0], SamplingRow(params(top_k=2), Window(), 0.9), [True] * 3))
def test_every_row_is_what_the_reference_says(max_bounded_k: int, case: Case) -> None:
    expected = case.expected()
    assume(all(margin > 1e-9 for margin in expected.margins))
    values = case.tensor
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "MAX_BOUNDED_K", max_bounded_k)
        result = sample(values, [case.row])[0]
    assert torch.equal(values, case.tensor)
    assert result.token_id == (NO_TOKEN if expected.token_id is None else expected.token_id)
    if expected.token_id is None or case.row.num_logprobs is None:
        assert (result.logprob, result.top) == (None, ())
        return
    raw = [max(value, LOWEST_LOGPROB) for value in logprobs(case.logits)]
    best = sorted(range(len(raw)), key=lambda token: (-case.logits[token], token))
    assert result.logprob == pytest.approx(raw[result.token_id], abs=1e-9, rel=1e-9)
    assert [token for token, _ in result.top] == best[: case.row.num_logprobs]
    assert [value for _, value in result.top] == pytest.approx(
        [raw[token] for token, _ in result.top], abs=1e-9, rel=1e-9
    )


@given(case=cases())
def test_both_ways_to_find_the_candidates_agree(case: Case) -> None:
    assume(all(margin > 1e-9 for margin in case.expected().margins))
    results = []
    for max_bounded_k in (10**9, 3, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pipeline, "MAX_BOUNDED_K", max_bounded_k)
            results.append(sample(case.tensor, [case.row])[0])
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("max_bounded_k", [10**9, 8])
@given(batch=st.integers(1, 24).flatmap(lambda size: st.lists(cases(size), min_size=2, max_size=6)))
def test_a_row_does_not_depend_on_its_neighbours(max_bounded_k: int, batch: list[Case]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "MAX_BOUNDED_K", max_bounded_k)
        together = sample(torch.cat([case.tensor for case in batch]), [case.row for case in batch])
        alone = [sample(case.tensor, [case.row])[0] for case in batch]
    assert together == alone


def test_the_example_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sampling.md").read_text("utf-8")
    of = params(
        presence_penalty=0.5, frequency_penalty=0.25, top_k=3, top_p=0.8, min_p=0.1, temperature=0.5
    )
    raw = cells(page, "logits")
    assert cells(page, "log probabilities reported") == pytest.approx(logprobs(raw), abs=6e-5)
    after = shaped(raw, of, [0, 0], (), [True] * 5)
    assert cells(page, "after penalties") == after
    top_k = reference(after, params(top_k=3), 0.5)
    assert top_k.survivors == [1, 0, 2]
    assert cells(page, "probabilities of the `top_k`") == pytest.approx(
        [top_k.probabilities[place] for place in (1, 0, 2)], abs=6e-5
    )
    final = reference(after, of, 0.5)
    assert final.survivors == [1, 0]
    assert cells(page, "left by `top_p` and `min_p`, at `temperature`") == pytest.approx(
        final.probabilities[::-1], abs=6e-5
    )
    for uniform, expected in ((0.7, 1), (0.8, 0)):
        row = SamplingRow(of, Window(token_ids=[0, 0]), uniform, num_logprobs=0)
        found = sample(torch.tensor([raw]), [row])[0]
        assert found.token_id == expected
        assert f"draw of {uniform} gives token {expected}" in page
        assert found.logprob == pytest.approx(logprobs(raw)[expected])


def cells(page: str, name: str) -> list[float]:
    """The numbers of a row of the example's table."""
    line = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
    return [float(cell) for cell in line.split("|")[2:] if cell.strip()]
