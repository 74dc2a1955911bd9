"""Which dialect a model speaks, by the marks its chat template leaves."""

from dataclasses import dataclass

from flm.text.parsers.base import Parser
from flm.text.parsers.plain import PlainParser
from flm.text.parsers.think import ThinkParser


@dataclass(frozen=True, slots=True)
class ReasoningStyle:
    """The tags around a reasoning block."""

    open_tag: str
    close_tag: str


_STYLES = (
    ReasoningStyle("<think>", "</think>"),
    ReasoningStyle("[THINK]", "[/THINK]"),
    ReasoningStyle("<seed:think>", "</seed:think>"),
    ReasoningStyle("<|START_THINKING|>", "<|END_THINKING|>"),
)


def detect_reasoning(template_source: str) -> ReasoningStyle | None:
    """How the model thinks, or None when its template knows no reasoning tags."""
    return next(
        (
            style
            for style in _STYLES
            if style.open_tag in template_source or style.close_tag in template_source
        ),
        None,
    )


def make_parser(style: ReasoningStyle | None, prompt: str | None) -> Parser:
    """A reader for one reply to ``prompt`` (the rendered text; None for a raw continuation,
    whose text is given back as it is)."""
    if style is None or prompt is None:
        return PlainParser()
    return ThinkParser(
        is_open=prompt.rstrip().endswith(style.open_tag),
        open_tag=style.open_tag,
        close_tag=style.close_tag,
    )
