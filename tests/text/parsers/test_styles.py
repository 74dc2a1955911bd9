import pytest

from flm.text.parsers import (
    OutputStyle,
    PlainParser,
    ReasoningStyle,
    ReplyShape,
    ThinkParser,
    detect_reasoning,
    make_parser,
)
from tests.text.templates import CHATML, QWEN_LIKE

THINK = ReasoningStyle("<think>", "</think>")


@pytest.mark.parametrize(
    ("source", "style"),
    [
        (QWEN_LIKE, THINK),
        ("{{ content.split('</think>')[-1] }}", THINK),
        ("[THINK]", ReasoningStyle("[THINK]", "[/THINK]")),
        (CHATML, None),
        ("", None),
    ],
)
def test_the_template_shows_the_style(source: str, style: ReasoningStyle | None) -> None:
    assert detect_reasoning(source) == style


@pytest.mark.parametrize(
    ("prompt", "channel"),
    [
        ("<|im_start|>assistant\n<think>\n", "reasoning"),
        ("<|im_start|>assistant\n<think>", "reasoning"),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", "content"),
        ("<|im_start|>user\n<think><|im_end|>\n<|im_start|>assistant\n", "content"),
    ],
)
def test_the_prompt_may_open_the_block(prompt: str, channel: str) -> None:
    parser = make_parser(OutputStyle(THINK), ReplyShape(prompt))
    assert isinstance(parser, ThinkParser)
    assert parser.channel == channel


def test_who_does_not_reason_and_who_only_continues_gets_plain_text() -> None:
    assert isinstance(make_parser(OutputStyle(None), ReplyShape("prompt")), PlainParser)
    assert isinstance(make_parser(OutputStyle(THINK), ReplyShape(None)), PlainParser)
