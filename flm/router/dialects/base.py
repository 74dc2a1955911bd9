"""What a wire format must offer, and what all of them use."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from flm.adaptation import Adaptation
from flm.router.adapt import Adapted, Body
from flm.router.faults import error_of
from flm.router.request import Tool
from flm.router.response import StreamEvent, StreamStart, TokenLogprob

Data = Mapping[str, Any]


class StreamParser(Protocol):
    """Reads the events of one stream. What it yields begins with one start and ends with one end
    when the provider's stream did; nothing is invented."""

    def feed(self, data: Data) -> Iterator[StreamEvent]:
        """Read one event.

        Raises:
            ProviderError: it is an error.
        """

    def finish(self, *, is_marked: bool = False) -> Iterator[StreamEvent]:
        """The stream is over: the end, if it was announced and not yielded yet. ``is_marked``:
        the provider said so."""


class WireDialect(Protocol):
    """One wire format."""

    def body(self, adapted: Adapted, *, stream: bool) -> Body:
        """The body of a request, without the settings."""

    def whole(self, data: Data, provider: str) -> Iterator[StreamEvent]:
        """A whole reply as the events that a stream of it would have had."""

    def parser(self, provider: str) -> StreamParser:
        """A reader of a stream."""


def raise_error(data: Data, provider: str) -> None:
    """Raise the error that a reply or an event of a stream carries, if any."""
    if data.get("error") is not None:
        raise error_of(provider, data)


def start_of(data: Data) -> StreamStart:
    """The start of a reply, with the record that a server of ours keeps."""
    records = tuple(
        Adaptation(
            text_of(entry["field"]),
            entry["action"],
            text_of(entry.get("reason")),
            entry.get("asked"),
            entry.get("applied"),
        )
        for entry in data.get("adaptations") or ()
    )
    return StreamStart(data.get("id") or None, text_of(data.get("model")), records)


def compact(value: Any) -> str:
    """JSON text without white space."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def number_of(data: Any, *path: str) -> int | None:
    """A count at a path, None where it is not."""
    for name in path:
        data = data.get(name) if isinstance(data, Mapping) else None
    return data if isinstance(data, int) and not isinstance(data, bool) else None


def text_of(value: Any) -> str:
    """``value`` if it is text; "" for None.

    Raises:
        TypeError: it is something else.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"text is a {type(value).__name__}")
    return value


def openai_logprobs(entries: Any) -> tuple[TokenLogprob, ...]:
    """Log probabilities as both of OpenAI's formats write them."""
    return tuple(
        TokenLogprob(
            text_of(entry["token"]),
            float(entry["logprob"]),
            tuple(
                TokenLogprob(text_of(other["token"]), float(other["logprob"]))
                for other in entry.get("top_logprobs") or ()
            ),
        )
        for entry in entries or ()
    )


def described(tool: Tool, *, keeps_strict: bool, name: str = "parameters") -> dict[str, Any]:
    """A function's name, description (where it has one) and schema."""
    parts: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        parts["description"] = tool.description
    parts[name] = tool.parameters
    if keeps_strict and tool.strict is not None:
        parts["strict"] = tool.strict
    return parts
