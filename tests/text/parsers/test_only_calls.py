"""A forced call that is cut off anywhere shows no markup as text, in every dialect."""

import pytest

from flm.text.parsers import OutputStyle, Parser, ReasoningStyle, ReplyShape, make_parser
from tests.text.parsers.reading import TOOLS, read
from tests.text.parsers.writing import FORMS, SAMPLE

THINK = ReasoningStyle("<think>", "</think>")


def parser_of(form: str, reasoning: ReasoningStyle | None = None, *, only_calls: bool) -> Parser:
    style = OutputStyle(reasoning, FORMS[form][0])
    return make_parser(style, ReplyShape("prompt", TOOLS, only_calls=only_calls))


@pytest.mark.parametrize("form", FORMS)
def test_no_beginning_of_a_call_is_text(form: str) -> None:
    text = FORMS[form][1](SAMPLE)
    shown = []
    for end in range(len(text) + 1):
        assert read(parser_of(form, only_calls=True), [text[:end]]).content == ""
        assert read(parser_of(form, only_calls=True), text[:end]).content == ""
        shown.append(read(parser_of(form, only_calls=False), [text[:end]]).content)
    # Where nothing is forced, the same beginning may have been meant as text.
    assert any(shown)
    assert read(parser_of(form, only_calls=True), [text]).values == SAMPLE


def test_reasoning_before_the_call_stays() -> None:
    text = f"<think>Let me see.</think>\n\n{FORMS['hermes'][1](SAMPLE)}<tool_c"
    result = read(parser_of("hermes", THINK, only_calls=True), [text])
    assert (result.reasoning, result.content) == ("Let me see.", "")
    assert result.values == SAMPLE
