"""How a model reasons and calls tools, and the reader of its replies that follows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flm.text.parsers.base import Parser
from flm.text.parsers.chain import ChainedParser
from flm.text.parsers.continued import ContinuedThinkParser
from flm.text.parsers.dialects import ToolDialect, detect_tool_dialect, tool_parser
from flm.text.parsers.only_calls import OnlyCallsParser
from flm.text.parsers.plain import HeldSpaceParser, PlainParser
from flm.text.parsers.think import ThinkParser


@dataclass(frozen=True, slots=True)
class ReasoningStyle:
    """The tags around a reasoning block. ``marker`` is what of the opening tag is one token, where
    that is not all of it."""

    open_tag: str
    close_tag: str
    marker: str | None = None

    @property
    def markers(self) -> frozenset[str]:
        """The tokens of the tags, which may be control tokens."""
        return frozenset({self.open_tag if self.marker is None else self.marker, self.close_tag})


THINK = ReasoningStyle("<think>", "</think>")
HARMONY = ReasoningStyle("<|channel|>analysis<|message|>", "<|end|>", "<|channel|>")
_STYLES = (
    THINK,
    ReasoningStyle("[THINK]", "[/THINK]"),
    ReasoningStyle("<seed:think>", "</seed:think>"),
    ReasoningStyle("<|START_THINKING|>", "<|END_THINKING|>"),
    ReasoningStyle("<|channel>thought", "<channel|>", "<|channel>"),
)


@dataclass(frozen=True, slots=True)
class OutputStyle:
    """What a model writes besides text. ``reasoning`` is None for a model that does not reason."""

    reasoning: ReasoningStyle | None
    tools: ToolDialect = "hermes"

    @property
    def has_channels(self) -> bool:
        """True for the harmony format: no reply can begin inside of a message."""
        return self.tools == "harmony" or self.reasoning == HARMONY


@dataclass(frozen=True, slots=True)
class ReplyShape:
    """What a reply may be, as far as the request decides it.

    ``prompt`` is the rendered text (None for a raw continuation, whose text is given back as it
    is). ``tools`` are those that may be called. ``continues``: the reply goes on in the middle of
    a message. ``may_reason``: thinking is not switched off. ``only_calls``: a call is forced, so
    the answer is calls and nothing else.
    """

    prompt: str | None
    tools: Sequence[Mapping[str, Any]] = ()
    continues: bool = False
    may_reason: bool = True
    only_calls: bool = False


def detect_reasoning(template_source: str) -> ReasoningStyle | None:
    """The reasoning tags that a template mentions; None when there are none."""
    if detect_tool_dialect(template_source) == "harmony":
        return HARMONY
    return next(
        (
            style
            for style in _STYLES
            if style.open_tag in template_source or style.close_tag in template_source
        ),
        None,
    )


def make_parser(style: OutputStyle, reply: ReplyShape) -> Parser:
    """A reader for one reply."""
    if reply.prompt is None:
        return PlainParser()
    if style.has_channels:
        return _calls_parser(style, reply)
    outer = _reasoning_parser(style.reasoning, reply)
    inner = _answer_parser(style, reply)
    if outer is None:
        return inner
    return outer if isinstance(inner, PlainParser) else ChainedParser(outer, inner)


def _reasoning_parser(style: ReasoningStyle | None, reply: ReplyShape) -> Parser | None:
    if style is None:
        return None
    if reply.continues:
        if not reply.may_reason:
            return None
        return ContinuedThinkParser(
            open_tag=style.open_tag, close_tag=style.close_tag, markers=style.markers
        )
    assert reply.prompt is not None
    return ThinkParser(
        is_open=reply.prompt.rstrip().endswith(style.open_tag),
        open_tag=style.open_tag,
        close_tag=style.close_tag,
        markers=style.markers,
    )


def _answer_parser(style: OutputStyle, reply: ReplyShape) -> Parser:
    if reply.tools:
        return _calls_parser(style, reply)
    return HeldSpaceParser() if reply.continues else PlainParser()


def _calls_parser(style: OutputStyle, reply: ReplyShape) -> Parser:
    parser = tool_parser("harmony" if style.has_channels else style.tools, reply.tools)
    return OnlyCallsParser(parser) if reply.only_calls else parser
