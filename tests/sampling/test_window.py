"""A window that keeps its counts is one that is counted anew each time."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.sampling.window import Window

TOKENS = st.lists(st.integers(0, 6), max_size=40)


def rebuilt(last_n: int, token_ids: list[int]) -> list[int]:
    return token_ids if last_n < 0 else token_ids[max(len(token_ids) - last_n, 0) :]


@given(last_n=st.integers(-1, 12), start=TOKENS, later=TOKENS, ahead=TOKENS)
def test_it_is_the_one_built_anew(
    last_n: int, start: list[int], later: list[int], ahead: list[int]
) -> None:
    window, said = Window(last_n, start), list(start)
    for token_id in later:
        window.append(token_id)
        said.append(token_id)
        assert list(window) == rebuilt(last_n, said)
        assert window.counts == Counter(window)
        assert len(window) == len(list(window))
    other = window.after(ahead)
    assert list(other) == rebuilt(last_n, said + ahead)
    assert other.counts == Counter(other)
    assert list(window) == rebuilt(last_n, said)
    assert window.counts == Counter(window)


@pytest.mark.parametrize(("last_n", "max_len"), [(-1, None), (0, 0), (64, 64)])
def test_how_many_it_holds(last_n: int, max_len: int | None) -> None:
    assert Window(last_n).max_len == max_len
    assert list(Window(10**30, [1, 1])) == [1, 1]
