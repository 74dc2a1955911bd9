import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.prefill.plan import (
    MIN_SLICE_LEN,
    PrefillSpan,
    chunk_lengths,
    chunk_mark,
    share_budget,
)


def test_the_example_of_the_documentation() -> None:
    lengths = chunk_lengths(32_000, 4096)
    assert lengths == (4096,) * 7 + (3328,)
    assert str(chunk_mark(PrefillSpan(0, 0, 32_000), 4096)) == (
        "Prefill chunk 1/8 with 4096 tokens"
    )
    assert str(chunk_mark(PrefillSpan(0, 7 * 4096, 32_000), 4096)) == (
        "Prefill chunk 8/8 with 3328 tokens"
    )


@pytest.mark.parametrize(
    ("num_new_tokens", "lengths"), [(0, ()), (1, (1,)), (512, (512,)), (513, (512, 1))]
)
def test_chunk_lengths(num_new_tokens: int, lengths: tuple[int, ...]) -> None:
    assert chunk_lengths(num_new_tokens, 512) == lengths


@pytest.mark.parametrize("arguments", [(-1, 512), (5, 0)])
def test_nonsense_is_refused(arguments: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="Cannot cut"):
        chunk_lengths(*arguments)


def test_a_mark_stands_only_at_the_start_of_a_chunk() -> None:
    span = PrefillSpan(start=96, position=96, end=96 + 700)
    assert str(chunk_mark(span, 512)) == "Prefill chunk 1/2 with 512 tokens"
    assert chunk_mark(PrefillSpan(96, 97, 796), 512) is None
    assert str(chunk_mark(PrefillSpan(96, 608, 796), 512)) == "Prefill chunk 2/2 with 188 tokens"
    assert chunk_mark(PrefillSpan(96, 608, 608), 512) is None


def whole(*lengths: int) -> list[PrefillSpan]:
    return [PrefillSpan(0, 0, length) for length in lengths]


def test_the_first_to_come_is_served_first() -> None:
    assert share_budget(whole(600, 100), budget=512, chunk_len=4096, shortest_first=False) == (
        512,
        0,
    )
    assert share_budget(whole(100, 600), budget=512, chunk_len=4096, shortest_first=False) == (
        100,
        412,
    )


def test_the_shortest_first_when_asked() -> None:
    assert share_budget(whole(600, 100), budget=512, chunk_len=4096, shortest_first=True) == (
        412,
        100,
    )


def test_no_crumbs_for_a_further_prompt() -> None:
    left = MIN_SLICE_LEN - 1
    spans = whole(512 - left, 600, left)
    assert share_budget(spans, budget=512, chunk_len=4096, shortest_first=False) == (
        512 - left,
        0,
        left,
    )


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(1, 300)), max_size=6),
    st.integers(1, 200),
    st.integers(1, 128),
    st.booleans(),
)
def test_budget_and_chunk_ends_are_kept_and_somebody_moves(
    shapes: list[tuple[int, int]], budget: int, chunk_len: int, shortest_first: bool
) -> None:
    spans = [PrefillSpan(3, 3 + done, 3 + done + left) for done, left in shapes]
    lengths = share_budget(spans, budget=budget, chunk_len=chunk_len, shortest_first=shortest_first)
    assert sum(lengths) <= budget
    for span, length in zip(spans, lengths, strict=True):
        done = span.position - span.start
        assert 0 <= length <= span.remaining
        assert length == 0 or done // chunk_len == (done + length - 1) // chunk_len
    if spans and not shortest_first:
        assert lengths[0] > 0
    assert not spans or any(lengths)
