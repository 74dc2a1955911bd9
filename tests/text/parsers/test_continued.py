"""A continued message of a model that thinks: only the closing tag tells what came before it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.text.parsers import HeldSpaceParser, OutputStyle, ReplyShape, make_parser
from flm.text.parsers.styles import THINK
from tests.text.parsers.reading import TOOLS, Read, cut_up, cuts, read

words = st.lists(
    st.sampled_from(["<think>", "</think>", "<thi", "</", "nk>", " ", "\n", "a", "b c", "é"]),
    max_size=10,
).map("".join)


def said(text: str, chunks: list[str] | None = None, *, may_reason: bool = True) -> Read:
    shape = ReplyShape("prompt", continues=True, may_reason=may_reason)
    parser = make_parser(OutputStyle(THINK), shape)
    return read(parser, [text] if chunks is None else chunks)


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        (" Paris.", "", " Paris."),
        ("  \n", "", "  \n"),
        ("", "", ""),
        (" hm\n</think>\n\nParis ", " hm", "Paris "),
        ("<think>\nhm</think>Paris", "hm", "Paris"),
        ("</think>Paris", "", "Paris"),
        ("hm</think>", "hm", ""),
        ("hm</think>a</think>b", "hm", "a</think>b"),
        ("hm</thin", "", "hm</thin"),
        ("<think>hm", "", "<think>hm"),
    ],
)
def test_the_closing_tag_decides(text: str, reasoning: str, content: str) -> None:
    assert said(text) == Read(content, reasoning)


@given(text=words, cut=cuts, may_reason=st.booleans())
def test_any_cut_gives_what_the_whole_gives(text: str, cut: list[int], may_reason: bool) -> None:
    whole = said(text, may_reason=may_reason)
    assert said(text, cut_up(text, cut), may_reason=may_reason) == whole
    assert said(text, list(text), may_reason=may_reason) == whole
    if not may_reason or "</think>" not in text:
        assert whole == Read(text)


def test_nothing_is_shown_before_it_is_known() -> None:
    parser = make_parser(OutputStyle(THINK), ReplyShape("prompt", continues=True))
    assert parser.feed("The answer is") == parser.feed(" </thi") == []
    assert [piece.text for piece in parser.feed("nk>yes")] == ["The answer is", "", "yes"]
    assert parser.feed(" no")[0].text == " no"


def test_white_space_waits_for_what_follows() -> None:
    parser = HeldSpaceParser()
    shown = [[p.text for p in parser.feed(part)] for part in ("a ", "\n", "b", " ")]
    assert shown == [["a"], [], [" \nb"], []]
    assert [p.text for p in parser.flush()] == [" "]
    assert parser.flush() == []


@given(text=words, cut=cuts)
def test_calls_behind_the_thoughts_of_a_continued_message(text: str, cut: list[int]) -> None:
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    shape = ReplyShape("prompt", tools=TOOLS, continues=True)
    whole = f"{text.replace('</think>', '')}</think>{call}"
    parser = make_parser(OutputStyle(THINK), shape)
    assert read(parser, cut_up(whole, cut)).calls == [("now", "{}", True)]
