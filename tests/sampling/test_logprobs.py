"""Log probabilities of raw logits."""

import math

import pytest
import torch

from flm.kernels.build import load_kernels
from flm.sampling.batch import Sampled
from flm.sampling.logprobs import token_logprobs
from flm.types import LOWEST_LOGPROB
from tests.sampling.rows import logits


def test_a_token_and_its_alternatives() -> None:
    values = logits(*(math.log(p) for p in (0.2, 0.5, 0.3)))
    found = token_logprobs(values, [0], 2)[0]
    assert found.token_id == 0
    assert found.logprob == pytest.approx(math.log(0.2), abs=1e-6)
    assert [token for token, _ in found.top] == [1, 2]
    assert [value for _, value in found.top] == pytest.approx(
        [math.log(0.5), math.log(0.3)], abs=1e-6
    )


def test_they_are_those_of_torch() -> None:
    values = torch.randn(4, 3000, generator=torch.Generator().manual_seed(0)) * 5
    expected = torch.log_softmax(values.double(), -1)
    for index, found in enumerate(token_logprobs(values, [5, 6, 7, 8], 20)):
        assert found.logprob == pytest.approx(expected[index, 5 + index].item(), abs=1e-12)
        assert [value for _, value in found.top] == pytest.approx(
            expected[index].topk(20).values.tolist(), abs=1e-12
        )


def test_the_token_among_its_alternatives_has_the_same_value() -> None:
    found = token_logprobs(torch.randn(1, 999), [17], 999)[0]
    assert dict(found.top)[17] == found.logprob


def test_equal_ones_come_by_lowest_id() -> None:
    found = token_logprobs(torch.zeros(1, 100), [99], 4)[0]
    assert [token for token, _ in found.top] == [0, 1, 2, 3]


def test_no_alternatives_more_than_there_are_and_no_rows() -> None:
    assert token_logprobs(logits(0.0), [0], 0) == [Sampled(0, 0.0, ())]
    assert len(token_logprobs(logits(0.0, 0.0), [0], 20)[0].top) == 2
    assert token_logprobs(torch.empty(0, 4), [], 5) == []


def test_what_cannot_be_said_as_a_logarithm_has_the_lowest_value() -> None:
    assert token_logprobs(logits(0.0, -math.inf), [1], 2) == [
        Sampled(1, LOWEST_LOGPROB, ((0, 0.0), (1, LOWEST_LOGPROB)))
    ]
    assert token_logprobs(logits(-3e38, 3e38), [0], 0) == [Sampled(0, LOWEST_LOGPROB, ())]
    nothing = token_logprobs(logits(-math.inf, -math.inf), [0], 1)
    assert nothing == [Sampled(0, LOWEST_LOGPROB, ((0, LOWEST_LOGPROB),))]


@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_row_does_not_depend_on_its_neighbours(num_threads: int) -> None:
    # Large enough that torch would share the sum of a single row between threads.
    values = torch.randn(3, 150_001, generator=torch.Generator().manual_seed(0)) * 2
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        for scale in torch.linspace(0.1, 4.0, 40).tolist():
            together = token_logprobs(values * scale, [1, 2, 3], 2)
            alone = [token_logprobs(values[i : i + 1] * scale, [i + 1], 2)[0] for i in range(3)]
            assert together == alone
    finally:
        torch.set_num_threads(before)


def test_the_kernels_find_the_same() -> None:
    kernels = load_kernels().kernels
    assert kernels is not None
    # Coarse values, so that equals stand at the cut; a row that allows one token, and none.
    values = (torch.randn(4, 3001, generator=torch.Generator().manual_seed(1)) * 4).round()
    values[2] = values[3] = -math.inf
    values[2, 77] = 1.5
    for number in (1, 5, 20):
        expected = token_logprobs(values, [0, 1, 77, 3], number)
        assert token_logprobs(values, [0, 1, 77, 3], number, kernels) == expected
