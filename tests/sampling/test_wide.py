"""Rows with a large top_k: the selection that replaces a sort, and what it costs nothing in."""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from flm.sampling.candidates import Candidates
from flm.sampling.draw import pick
from flm.sampling.filters import survivors, weights
from flm.sampling.pipeline import MAX_BOUNDED_K
from flm.sampling.wide import _ranks, sample_wide
from flm.types import SamplingParams
from tests.sampling.rows import params

VOCAB_SIZE = 5000


def by_sorting(row: Tensor, of: SamplingParams, uniform: float) -> int:
    """The same with the whole row sorted."""
    logits = row.double().numpy()
    order = np.lexsort((np.arange(len(logits)), -logits))
    left = survivors(Candidates(logits[order], order).head(of.top_k), of)
    return pick(left, weights(left, of.temperature), uniform)


def rows() -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(0)
    smooth = torch.randn(VOCAB_SIZE, generator=generator) * 2
    peaked = smooth.clone()
    peaked[:20] += 15
    yield smooth
    yield peaked
    yield (smooth * 2).round() / 2  # many ties, -0.0 among them
    yield torch.zeros(VOCAB_SIZE)
    yield torch.where(smooth > 0, smooth, -torch.inf)
    yield torch.where(smooth > 2, smooth * 1e37, smooth)
    # Neighbouring floats, which share the upper half of their bits.
    yield 1 + torch.randint(0, 50, (VOCAB_SIZE,), generator=generator) * 2.0**-23
    yield -1 - torch.randint(0, 50, (VOCAB_SIZE,), generator=generator) * 2.0**-23


SETTINGS = [
    params(),
    params(temperature=5.0),
    params(temperature=0.2, top_p=0.9),
    params(top_p=0.999),
    params(min_p=0.01, temperature=3.0),
    params(top_k=MAX_BOUNDED_K + 1),
    params(top_k=3000, top_p=0.95, min_p=1e-4, temperature=2.0),
    params(top_k=VOCAB_SIZE - 1, top_p=0.5),
]


@pytest.mark.parametrize("of", SETTINGS)
def test_it_is_what_sorting_gives(of: SamplingParams) -> None:
    uniforms = np.random.default_rng(1).random(40).tolist()
    for row in rows():
        for uniform in (0.0, *uniforms, 1 - 2**-53):
            assert sample_wide(row, of, uniform) == by_sorting(row, of, uniform)


@given(
    values=st.lists(
        st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20
    )
)
def test_ranks_are_the_opposite_order_of_any_floats(values: list[float]) -> None:
    logits: npt.NDArray[np.float32] = np.array(values, dtype=np.float32)
    ranks = _ranks(logits)
    for value, rank in zip(values, ranks, strict=True):
        assert np.array_equal(ranks < rank, logits > np.float32(value))
        assert np.array_equal(ranks == rank, logits == np.float32(value))


def test_the_best_possible_token_comes_first() -> None:
    row = torch.full((VOCAB_SIZE,), -math.inf)
    row[[7, 4000]] = torch.tensor([1.0, 1.0])
    assert sample_wide(row, params(top_p=0.0), 0.99) == 7
    assert sample_wide(row, params(), 0.49) == 7
    assert sample_wide(row, params(), 0.51) == 4000
    assert sample_wide(row, params(), 1 - 2**-53) == 4000


def test_a_token_without_weight_is_never_drawn() -> None:
    row = torch.zeros(VOCAB_SIZE)
    row[4321] = 3e38
    for uniform in (0.0, 0.5, 1 - 2**-53):
        assert sample_wide(row, params(temperature=100.0), uniform) == 4321


def test_the_row_is_left_as_it_is() -> None:
    row = torch.randn(50)
    before = row.clone()
    sample_wide(row, params(top_k=20, top_p=0.9, min_p=0.01), 0.7)
    assert torch.equal(row, before)
