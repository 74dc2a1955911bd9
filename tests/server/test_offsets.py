from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from flm.server.offsets import num_chars, text_offsets
from flm.types import TokenLogprob


def _entries(*pieces: bytes, hidden: bytes | None = None) -> list[TokenLogprob]:
    return [TokenLogprob(0, "", piece, -1.0, is_hidden=piece == hidden) for piece in pieces]


@given(st.text(max_size=12), st.lists(st.integers(0, 40), max_size=6), st.integers(0, 5))
def test_offsets_point_into_the_text(text: str, cuts: list[int], start: int) -> None:
    raw = text.encode()
    bounds = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    entries = _entries(*(raw[one:two] for one, two in pairwise(bounds)))
    expected = []
    for position in bounds[:-1]:
        before = raw[:position].decode(errors="ignore")
        expected.append(start + len(before))
    assert text_offsets(entries, start) == expected
    assert num_chars(entries) == len(text)


@given(st.lists(st.sampled_from([b"\xf0", b"\x9f", b"\x91", b"\x8b", b"\xe0", b"a", b"<e>"])))
def test_bytes_that_are_no_text_count_as_they_are_shown(pieces: list[bytes]) -> None:
    text = b"".join(pieces).decode(errors="replace")
    entries = _entries(*pieces)
    assert num_chars(entries) == len(text)
    for piece, offset in zip(pieces, text_offsets(entries, 0), strict=True):
        if piece.isascii():
            assert text[offset:].startswith(piece.decode())


def test_a_character_that_is_broken_off() -> None:
    assert text_offsets(_entries(b" \xf0\x9f", b",", b"\x91", b"b"), 0) == [0, 2, 3, 4]
    assert text_offsets(_entries(b"\xf0\x9f", b"\x91\x8b", b"\xf0", b"\xf0"), 3) == [3, 3, 4, 5]


def test_hidden_tokens_take_no_room() -> None:
    entries = _entries(b"a", b"<eos>", b"\xf0\x9f", b"<eos>", b"\x91\x8b", b"z", hidden=b"<eos>")
    assert text_offsets(entries, 0) == [0, 1, 1, 1, 1, 2]
    assert num_chars(entries) == 3
