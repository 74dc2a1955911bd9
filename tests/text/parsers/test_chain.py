"""Thoughts, then an answer with calls in it, whatever the model's tags and dialect."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.text.parsers import OutputStyle, ReasoningStyle, ReplyShape, ToolDialect, make_parser
from flm.text.parsers.styles import _STYLES
from tests.text.parsers.reading import TOOLS, Read, arguments, cut_up, cuts, read
from tests.text.parsers.writing import FORMS, JSON_FORMS, SAMPLE

FORMS_BEHIND = ("hermes", "mistral, names", "gemma4", "qwen3.5", "deepseek v3.1")
styles = pytest.mark.parametrize("style", _STYLES, ids=lambda style: style.open_tag)
texts = st.text(st.characters(exclude_characters="<[{｜|", exclude_categories=["Cs"]), max_size=9)


def said(
    style: ReasoningStyle, dialect: ToolDialect, text: str, cut: list[int], *, prompt: str = "p"
) -> Read:
    parser = make_parser(OutputStyle(style, dialect), ReplyShape(prompt, tools=TOOLS))
    whole = read(parser, [text])
    for chunks in (cut_up(text, cut), list(text)):
        parser = make_parser(OutputStyle(style, dialect), ReplyShape(prompt, tools=TOOLS))
        assert read(parser, chunks) == whole
    return whole


@styles
@pytest.mark.parametrize("form", FORMS_BEHIND)
@given(cut=cuts)
def test_every_dialect_behind_every_kind_of_thought(
    style: ReasoningStyle, form: str, cut: list[int]
) -> None:
    dialect, write = FORMS[form]
    thought = f"Shall I?\n{write(SAMPLE[:1])}\nYes."
    text = f"{style.open_tag}\n{thought}\n{style.close_tag}\n\nI look.\n{write(SAMPLE)}"
    result = said(style, dialect, text, cut)
    assert (result.reasoning, result.content, result.values) == (thought, "I look.", SAMPLE)
    opened = text.removeprefix(style.open_tag)
    assert said(style, dialect, opened, cut, prompt=f"a\n{style.open_tag}\n") == result


@styles
@pytest.mark.parametrize("form", ["hermes", "llama3", "mistral, a list"])
@given(values=arguments, thought=texts, cut=cuts)
def test_arguments_may_hold_the_tags_of_thinking(
    style: ReasoningStyle, form: str, values: dict[str, object], thought: str, cut: list[int]
) -> None:
    dialect, write = JSON_FORMS[form]
    values = {**values, "a": f"{style.open_tag} {style.close_tag}"}
    text = f"{style.open_tag}{thought}{style.close_tag}{write([('note', values)])}"
    result = said(style, dialect, text, cut)
    assert result.values == [("note", values)]
    assert result.reasoning.strip() == thought.strip()


@styles
def test_a_block_that_never_closes_is_all_reasoning(style: ReasoningStyle) -> None:
    call = FORMS["hermes"][1](SAMPLE)
    for end in range(1, len(style.close_tag)):
        text = f"{style.open_tag}hm {call} {style.close_tag[:end]}"
        result = said(style, "hermes", text, [end, 5 * end])
        assert result == Read("", text.removeprefix(style.open_tag))


@styles
def test_a_reply_cut_off_anywhere_loses_nothing(style: ReasoningStyle) -> None:
    text = f"{style.open_tag}hm{style.close_tag}So: {FORMS['hermes'][1](SAMPLE)}"
    for length in range(len(text)):
        result = said(style, "hermes", text[:length], [length // 2])
        if length >= len(f"{style.open_tag}hm{style.close_tag}So:"):
            assert result.reasoning == "hm"
            assert result.content.startswith("So:")
        for _, told, is_whole in result.calls:
            assert not is_whole or isinstance(json.loads(told), dict)
