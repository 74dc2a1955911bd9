"""How the chunks of a stream become bytes: server-sent events, with or without names, or lines."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flm.server.errors import dump_json


@dataclass(frozen=True, slots=True)
class Framing:
    """One form of streams. ``keep_alive`` goes into every silence and ``end`` behind a whole
    reply, where they are not empty."""

    media_type: str
    frame: Callable[[dict[str, Any]], bytes]
    keep_alive: bytes = b""
    end: bytes = b""


_EVENT_STREAM = "text/event-stream; charset=utf-8"
_COMMENT = b": keep-alive\n\n"


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + dump_json(chunk) + b"\n\n"


EVENTS = Framing(_EVENT_STREAM, _event, _COMMENT)
"""Server-sent events."""
OPENAI_EVENTS = Framing(_EVENT_STREAM, _event, _COMMENT, b"data: [DONE]\n\n")
"""The same, with OpenAI's mark that the reply is whole."""


def _named_event(chunk: dict[str, Any]) -> bytes:
    return b"event: " + str(chunk["type"]).encode() + b"\n" + _event(chunk)


NAMED_EVENTS = Framing(_EVENT_STREAM, _named_event, _COMMENT)
"""Server-sent events, each under the name that is its ``type``."""
LINES = Framing("application/x-ndjson", lambda chunk: dump_json(chunk) + b"\n")
"""One JSON object a line."""
