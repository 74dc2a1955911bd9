from typing import Any

import pytest

from flm.engine.sequence import Sequence
from flm.kvcache.manager import KVCacheManager
from flm.types import SamplingParams
from tests.support.engines import request


def sequence(**fields: Any) -> Sequence:
    return Sequence(request("a", [1, 2, 3], **fields), arrival=0, submitted_at=10.0, random=None)


@pytest.mark.parametrize(
    ("last_n", "kept"), [(0, []), (2, [4, 5]), (-1, [3, 4, 5]), (10**30, [3, 4, 5])]
)
def test_the_window_holds_the_last_generated_tokens(last_n: int, kept: list[int]) -> None:
    found = sequence(sampling=SamplingParams(repeat_last_n=last_n))
    for token_id in (3, 4, 5):
        found.append(token_id, 11.0)
    assert list(found.window) == kept


def test_end_tokens_are_banned_until_there_are_enough() -> None:
    found = sequence(min_new_tokens=2, eos_ids=frozenset({9}), max_new_tokens=5)
    assert found.banned_after() == (9,)
    # Should one be sampled all the same, it does not end the sequence.
    assert found.append(9, 11.0) is None
    assert found.append(4, 11.0) is None
    assert found.banned_after() == ()
    assert found.append(9, 11.0) == "stop"


def test_the_last_token_may_be_an_end_token() -> None:
    found = sequence(eos_ids=frozenset({9}), max_new_tokens=1)
    assert found.append(9, 11.0) == "stop"


def test_what_was_found_at_the_first_admission_is_what_is_reported() -> None:
    cache = KVCacheManager(4, 1)
    found = sequence()
    lease = cache.open(found.token_ids)
    cache.reserve(lease, 3)
    found.admit(lease, 1.0)
    assert found.is_prefilling
    assert (found.num_cached, found.prefill.remaining) == (0, 3)
    cache.commit(lease, found.token_ids, 3, prompt_len=3)
    cache.release(lease)
    found.suspend()
    assert not found.is_prefilling
    found.admit(cache.open(found.token_ids), 2.0)
    assert (found.num_computed, found.num_cached) == (2, 0)


def test_durations_without_a_token_end_now() -> None:
    end = sequence().finished("abort", 12.5)
    assert (end.prefill_duration, end.decoding_duration) == (2.5, 0.0)


def test_durations_with_tokens() -> None:
    found = sequence()
    found.append(4, 12.0)
    found.append(5, 15.0)
    end = found.finished("abort", 99.0, num_kept=1)
    assert (end.prefill_duration, end.decoding_duration) == (2.0, 3.0)
    assert end.completion_tokens == 1
