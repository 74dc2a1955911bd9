"""Guesses at what follows, and when a sequence stops to guess."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.engine.drafts import MATCH_LENS, MAX_DRAFT_LEN, Drafter, History


def continuation(token_ids: list[int], max_len: int) -> tuple[int, ...]:
    history = History()
    history.catch_up(token_ids)
    return history.continuation(max_len)


@pytest.mark.parametrize(
    ("token_ids", "expected"),
    [
        ([], ()),
        ([1], ()),
        ([1, 2], ()),
        ([1, 2, 3, 4, 5], ()),
        ([1, 2, 3, 9, 8, 7, 1, 2, 3], (9, 8, 7, 1)),
        # Only two tokens are the same.
        ([4, 2, 3, 9, 8, 7, 1, 2, 3], (9, 8, 7, 1)),
        # One is too few.
        ([4, 5, 3, 9, 8, 7, 1, 2, 3], ()),
        # Three that are the same count more than two later ones.
        ([1, 2, 3, 5, 5, 2, 3, 6, 6, 1, 2, 3], (5, 5, 2, 3)),
        # Of equal ones the latest counts.
        ([1, 2, 3, 5, 1, 2, 3, 6, 1, 2, 3], (6, 1, 2, 3)),
        # A continuation that is the ending itself goes on with itself.
        ([7, 7, 7], (7, 7, 7, 7)),
        ([1, 2, 1, 2, 1], (2, 1, 2, 1)),
        ([0, 1, 2, 3, 1, 2, 3, 1], (2, 3, 1, 2)),
        # Tokens of every size a vocabulary can have, those of surrogates among them.
        ([0xD800, 300_000, 0, 55, 0xD800, 300_000, 0], (55, 0xD800, 300_000, 0)),
    ],
    ids=str,
)
def test_the_continuation_of_the_latest_earlier_occurrence(
    token_ids: list[int], expected: tuple[int, ...]
) -> None:
    assert continuation(token_ids, 4) == expected


def slowly(token_ids: list[int], max_len: int) -> list[int]:
    """The same by definition, a place at a time."""
    for match_len in MATCH_LENS:
        for start in range(len(token_ids) - match_len - 1, -1, -1):
            if token_ids[start : start + match_len] == token_ids[-match_len:]:
                found = list(token_ids)
                for place in range(max_len):
                    found.append(found[start + match_len + place])
                return found[len(token_ids) :]
    return []


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 8))
def test_any_history_is_searched_as_by_hand(token_ids: list[int], max_len: int) -> None:
    assert list(continuation(token_ids, max_len)) == slowly(token_ids, max_len)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.data())
def test_a_history_that_grew_is_one_that_came_at_once(
    token_ids: list[int], data: st.DataObject
) -> None:
    history = History()
    for end in sorted(data.draw(st.sets(st.integers(0, len(token_ids))))):
        history.catch_up(token_ids[:end])
    history.catch_up(token_ids)
    assert history.continuation(5) == continuation(token_ids, 5)


def test_the_length_follows_what_was_right() -> None:
    drafter, repeated = Drafter(), [1] * 50
    lengths = []
    for num_right in (4, 8, 8, 3, 1, 2, 4):
        drafts = drafter.draft(repeated, 100)
        lengths.append(len(drafts))
        drafter.learn(len(drafts), min(num_right, len(drafts)))
    assert lengths == [4, 8, MAX_DRAFT_LEN, 8, 3, 2, 4]
    assert len(drafter.draft(repeated, 1)) == 1
    assert drafter.draft(repeated, 0) == drafter.draft(repeated, -1) == ()


def test_who_keeps_failing_guesses_ever_less_often() -> None:
    drafter, tokens = Drafter(), [1] * 10
    guessed_at = []
    for length in range(10, 400):
        drafts = drafter.draft(tokens, 8)
        if drafts:
            guessed_at.append(length)
            drafter.learn(len(drafts), 0)
        tokens.append(1)
    gaps = [after - before for before, after in itertools.pairwise(guessed_at)]
    assert gaps == [2, 4, 8, 16, 32, 64, 64, 64, 64, 64]


def test_one_right_guess_is_forgiveness() -> None:
    drafter, tokens = Drafter(), [1] * 10
    for num_right in (0, 0, 0, 1, 0):
        while not drafter.draft(tokens, 8):
            tokens.append(1)
        drafter.learn(4, num_right)
    tokens.append(1)
    assert drafter.draft(tokens, 8) == ()
    tokens.append(1)
    assert drafter.draft(tokens, 8) != ()


def test_who_gave_up_never_guesses_again() -> None:
    drafter = Drafter()
    drafter.give_up()
    assert drafter.draft([1] * 100, 8) == ()
