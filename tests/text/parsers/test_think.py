import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.text.parsers import Parser, Piece, PlainParser, ThinkParser
from flm.text.parsers.think import partial_len

words = st.lists(
    st.sampled_from(["<think>", "</think>", "<thi", "</", "nk>", " ", "\n", "a", "b c", "<", "é"]),
    max_size=10,
)


def _parser(*, is_open: bool) -> ThinkParser:
    return ThinkParser(is_open=is_open, open_tag="<think>", close_tag="</think>")


def _pieces(parser: Parser, chunks: list[str]) -> list[Piece]:
    return [*(piece for chunk in chunks for piece in parser.feed(chunk)), *parser.flush()]


def _channels(pieces: list[Piece]) -> tuple[str, str]:
    reasoning = "".join(piece.text for piece in pieces if piece.channel == "reasoning")
    return reasoning, "".join(piece.text for piece in pieces if piece.channel == "content")


def _split(text: str, *, is_open: bool = False) -> tuple[str, str]:
    return _channels(_pieces(_parser(is_open=is_open), [text]))


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>\nhm\n</think>\n\nyes", "hm", "yes"),
        ("  \n<think>hm</think>yes", "hm", "yes"),
        ("<think>\n\n</think>\n\nyes", "", "yes"),
        ("<think>a <think> b</think>c</think>d", "a <think> b", "c</think>d"),
        ("<think>cut off", "cut off", ""),
        ("<think>cut </thi", "cut </thi", ""),
        ("<think>  a  b ", "a  b ", ""),
        ("yes <think>no</think>", "", "yes <think>no</think>"),
        (" yes\n", "", " yes\n"),
        ("<thin", "", "<thin"),
        ("<think", "", "<think"),
        ("", "", ""),
        ("  ", "", "  "),
        ("</think>a", "", "</think>a"),
    ],
)
def test_a_block_at_the_beginning_is_reasoning(text: str, reasoning: str, content: str) -> None:
    assert _split(text) == (reasoning, content)


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("hm\n</think>\n\nyes", "hm", "yes"),
        ("\nhm", "hm", ""),
        ("<think>\nhm</think>yes", "hm", "yes"),
        ("</think>yes", "", "yes"),
        ("", "", ""),
        ("\n", "", ""),
    ],
)
def test_a_block_opened_by_the_prompt(text: str, reasoning: str, content: str) -> None:
    assert _split(text, is_open=True) == (reasoning, content)


@given(chunks=words, is_open=st.booleans())
def test_any_cut_gives_what_the_whole_gives(chunks: list[str], is_open: bool) -> None:
    text = "".join(chunks)
    whole = _split(text, is_open=is_open)
    assert _channels(_pieces(_parser(is_open=is_open), chunks)) == whole
    assert _channels(_pieces(_parser(is_open=is_open), list(text))) == whole


@given(chunks=words, is_open=st.booleans())
def test_the_pieces_account_for_the_whole_output(chunks: list[str], is_open: bool) -> None:
    pieces = _pieces(_parser(is_open=is_open), chunks)
    assert sum(piece.raw_len for piece in pieces) == len("".join(chunks))
    assert all(piece.raw_len == len(piece.text) or not piece.text for piece in pieces)


def test_text_is_given_out_as_soon_as_it_is_certain() -> None:
    parser = _parser(is_open=False)
    assert parser.feed("<think>") != []
    assert parser.channel == "reasoning"
    assert [piece.text for piece in parser.feed("let me")] == ["let me"]
    assert [piece.text for piece in parser.feed(" see </")] == [" see"]
    assert "".join(piece.text for piece in parser.feed("think> ")) == ""
    assert parser.channel == "content"
    assert [piece.text for piece in parser.feed(" yes ")] == ["", "yes "]


def test_everything_is_content_to_the_plain_parser() -> None:
    parser = PlainParser()
    assert parser.feed("<think>") == [Piece("content", "<think>", 7)]
    assert parser.feed("") == parser.flush() == []
    assert parser.channel == "content"


def test_partial_len() -> None:
    assert partial_len("abc", "cde") == 1
    assert partial_len("cde", "cde") == 0
    assert partial_len("", "cde") == 0
    assert partial_len("aa", "aaa") == 2
