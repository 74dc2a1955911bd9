"""Events from bytes, as the standard says, however they are cut."""

from hypothesis import given
from hypothesis import strategies as st

from flm.router.sse import SSEDecoder


def decoded(*chunks: bytes) -> list[str]:
    decoder = SSEDecoder()
    found = [text for chunk in chunks for text in decoder.feed(chunk)]
    return [*found, *decoder.finish()]


def test_the_lines_of_an_event_are_joined() -> None:
    assert decoded(b"data: a\ndata: b\n\ndata:c\n\n") == ["a\nb", "c"]


def test_a_line_end_that_is_cut_in_two_is_one() -> None:
    assert decoded(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == ["a\nb"]


def test_other_lines_are_passed_over() -> None:
    assert decoded(b": hi\nid: 1\nevent: x\nretry: 3\ndatabase: no\ndata\ndata: a\n\n") == ["\na"]


def test_a_mark_of_order_at_the_beginning_is_no_text() -> None:
    assert decoded(b"\xef\xbb\xbfdata: a\n\n") == ["a"]


def test_the_last_event_needs_no_blank_line() -> None:
    assert decoded(b"data: a\n\ndata: b") == ["a", "b"]


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=9)
    ),
    st.sampled_from(["\n", "\r", "\r\n"]),
    st.lists(st.integers(0, 200)),
)
def test_how_bytes_are_cut_changes_nothing(
    texts: list[str], ending: str, places: list[int]
) -> None:
    content = "".join(f"data: {text}{ending}data: .{ending}{ending}" for text in texts).encode()
    cuts = sorted({place % (len(content) + 1) for place in places})
    pieces = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]
    assert decoded(*pieces) == [f"{text}\n." for text in texts]
