"""What comes back: whole replies, and the events of a stream."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from flm.adaptation import Adaptation
from flm.router.parts import (
    CitationPart,
    Part,
    RefusalPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from flm.router.request import Message

FinishReason = Literal["stop", "length", "tool_call", "content_filter", "error"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts of tokens. None: the provider did not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None

    def __post_init__(self) -> None:
        known = self.input_tokens is not None and self.output_tokens is not None
        if self.total_tokens is None and known:
            total = (self.input_tokens or 0) + (self.output_tokens or 0)
            object.__setattr__(self, "total_tokens", total)

    def updated(self, later: "Usage") -> "Usage":
        """These counts with the ones that ``later`` knows."""
        names = ("input", "output", "cache_read", "cache_write", "reasoning")
        merged = {
            f"{name}_tokens": (
                getattr(self, f"{name}_tokens")
                if getattr(later, f"{name}_tokens") is None
                else getattr(later, f"{name}_tokens")
            )
            for name in names
        }
        grown = Usage(**merged)
        if grown.total_tokens is not None and later.total_tokens is None:
            return grown
        total = later.total_tokens if later.total_tokens is not None else self.total_tokens
        return replace(grown, total_tokens=total)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token, its log probability, and the best alternatives at its place."""

    token: str
    logprob: float
    top: tuple["TokenLogprob", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A whole reply. ``adaptations`` is the record of what was done other than asked."""

    model: str
    message: Message
    finish_reason: FinishReason
    usage: Usage = field(default_factory=Usage)
    id: str | None = None
    adaptations: tuple[Adaptation, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    logprobs_complete: bool = True
    provider_data: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def text(self) -> str | None:
        """The answer; None when it is something else, such as a call of a tool."""
        plain = TextPart | CitationPart | ThinkingPart
        texts = [part.text for part in self.message.parts if isinstance(part, TextPart)]
        is_plain = all(isinstance(part, plain) for part in self.message.parts)
        return "\n".join(texts) if texts and is_plain else None

    @property
    def reasoning(self) -> str | None:
        """What the model thought before it answered, as far as the provider shows it."""
        thoughts = self.message.parts_of(ThinkingPart)
        return "\n".join(part.text for part in thoughts) if thoughts else None

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The calls of tools."""
        return self.message.parts_of(ToolCallPart)

    @property
    def citations(self) -> tuple[CitationPart, ...]:
        """The sources."""
        return self.message.parts_of(CitationPart)

    @property
    def json(self) -> Any:
        """The text read as JSON; None where it is none."""
        try:
            return json.loads(self.text or "")
        except (ValueError, RecursionError):
            return None


# --- the events of a stream --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamStart:
    """The first event, once."""

    type: ClassVar[str] = "start"
    id: str | None
    model: str
    adaptations: tuple[Adaptation, ...] = ()


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of the part ``part_index``."""

    type: ClassVar[str] = "text"
    text: str
    part_index: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """More reasoning."""

    type: ClassVar[str] = "thinking"
    text: str
    part_index: int = 0
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class RefusalDelta:
    """More of a refusal by the model."""

    type: ClassVar[str] = "refusal"
    text: str
    part_index: int = 0


@dataclass(frozen=True, slots=True)
class CitationDelta:
    """A source."""

    type: ClassVar[str] = "citation"
    citation: CitationPart
    part_index: int = 0


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of a call; the ``arguments`` of one part add up to JSON text."""

    type: ClassVar[str] = "tool_call"
    arguments: str
    part_index: int = 0
    id: str | None = None
    name: str | None = None
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The last event, once."""

    type: ClassVar[str] = "end"
    finish_reason: FinishReason
    usage: Usage = field(default_factory=Usage)


Delta = TextDelta | ThinkingDelta | RefusalDelta | CitationDelta | ToolCallDelta
StreamEvent = StreamStart | Delta | StreamEnd


def fold_message(parts: list[Part]) -> Message:
    """A message of the assistant; one that says nothing holds an empty text."""
    return Message("assistant", tuple(parts) if parts else (TextPart(""),))


def read_arguments(text: str) -> dict[str, Any]:
    """Arguments of a call; text that is no JSON object is kept as ``partial_json``."""
    try:
        found = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"partial_json": text}


__all__ = [
    "CitationDelta",
    "Delta",
    "FinishReason",
    "RefusalDelta",
    "RefusalPart",
    "Response",
    "StreamEnd",
    "StreamEvent",
    "StreamStart",
    "TextDelta",
    "ThinkingDelta",
    "TokenLogprob",
    "ToolCallDelta",
    "Usage",
    "fold_message",
    "read_arguments",
]
