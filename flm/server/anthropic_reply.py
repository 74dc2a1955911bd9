"""Replies of ``POST /v1/messages``, whole and streamed: events become blocks of content.

A whole reply is what the chunks of a stream add up to, but for the input of a call that no object
can carry: a stream that told of the call already gives its text, a whole reply has it as text.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from flm.errors import FlmError
from flm.server.admission import Admitted
from flm.server.call_input import read_object
from flm.server.envelopes import anthropic_envelope
from flm.server.formats import Chunks, Whole
from flm.server.framing import NAMED_EVENTS
from flm.server.responses import ReplyHead
from flm.server.schemas.anthropic import MessagesFields
from flm.types import (
    ChoiceDone,
    Event,
    PromptEcho,
    ReadProgress,
    RequestDone,
    TextDelta,
    ToolCallDelta,
    Usage,
)

Chunk = dict[str, Any]


class MessagesFormat:
    """One message; a stream tells its blocks one after the other."""

    framing = replace(NAMED_EVENTS, keep_alive=b'event: ping\ndata: {"type":"ping"}\n\n')

    def whole(self, head: ReplyHead, admission: Admitted) -> Whole:
        """The message."""
        return WholeMessage(_stream(head, admission, is_whole=True))

    def chunks(self, head: ReplyHead, admission: Admitted) -> Chunks:
        """The events that it is made of."""
        return _stream(head, admission, is_whole=False)


def _stream(head: ReplyHead, admission: Admitted, *, is_whole: bool) -> "MessageStream":
    body, prepared = admission.call.body, admission.generation.prepared
    assert isinstance(body, MessagesFields)
    # A whole reply can wait, and not every input that a grammar allows is one that it can carry.
    eager = frozenset() if is_whole else body.eager_tools
    is_eager = body.calls is not None and not is_whole
    blocks = Blocks(
        shows_thinking=body.shows_thinking, streams_input=lambda name: is_eager or name in eager
    )
    asked, room = prepared.request.max_tokens, prepared.max_new_tokens[0]
    return MessageStream(head, blocks, is_clamped=asked is None or asked > room)


# --- blocks ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _HeldCall:
    """A call of which nothing is told before it is known to be one."""

    id: str
    name: str
    parts: list[str] = field(default_factory=list)


class Blocks:
    """Cuts a reply into blocks, and tells each as a start, deltas and a stop.

    The input of a call is sent as it comes if ``streams_input`` says so of its tool; else when it
    is whole, because a client cannot take a call back whose input turns out to be no object. Such
    a call becomes text.
    """

    def __init__(self, *, shows_thinking: bool, streams_input: Callable[[str], bool]) -> None:
        self._shows_thinking = shows_thinking
        self._streams_input = streams_input
        self._index = -1
        self._kind: str | None = None  # of the open block
        self._held: _HeldCall | None = None
        self.has_calls = False

    def add(self, event: TextDelta | ToolCallDelta) -> list[Chunk]:
        """What the event adds."""
        if isinstance(event, ToolCallDelta):
            return self._add_call(event)
        if not event.text:
            return []
        chunks = self._settle(is_cut=False)
        if event.channel == "content":
            return [*chunks, *self._add_text(event.text)]
        chunks += self._enter({"type": "thinking", "thinking": "", "signature": ""})
        if self._shows_thinking:
            chunks.append(self._delta({"type": "thinking_delta", "thinking": event.text}))
        return chunks

    def end(self, *, is_cut: bool) -> list[Chunk]:
        """The end of the reply; ``is_cut``: the model had more to say."""
        return [*self._settle(is_cut=is_cut), *self._close()]

    # --- calls ---------------------------------------------------------------------------------

    def _add_call(self, event: ToolCallDelta) -> list[Chunk]:
        chunks: list[Chunk] = []
        if event.id is not None and event.name is not None:
            chunks = self.end(is_cut=False)
            call = _HeldCall(f"toolu_{event.id.removeprefix('call_')}", event.name)
            if self._streams_input(event.name):
                chunks += self._open_call(call)
            else:
                self._held = call
        if self._held is not None:
            self._held.parts.append(event.arguments)
        elif event.arguments:
            chunks.append(self._input(event.arguments))
        return chunks

    def _settle(self, *, is_cut: bool) -> list[Chunk]:
        """Tell the call that was held, as what it turned out to be."""
        call, self._held = self._held, None
        if call is None:
            return []
        arguments = "".join(call.parts)
        if read_object(arguments, is_cut=is_cut) is not None:
            return [*self._open_call(call), self._input(arguments), *self._close()]
        return self._add_text(f'{{"name": {json.dumps(call.name)}, "arguments": {arguments}')

    def _open_call(self, call: _HeldCall) -> list[Chunk]:
        self.has_calls = True
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        return self._enter({**block, "caller": {"type": "direct"}}, is_new=True)

    def _input(self, arguments: str) -> Chunk:
        return self._delta({"type": "input_json_delta", "partial_json": arguments})

    # --- any block -----------------------------------------------------------------------------

    def _add_text(self, text: str) -> list[Chunk]:
        begun = self._enter({"type": "text", "text": "", "citations": None})
        return [*begun, self._delta({"type": "text_delta", "text": text})]

    def _enter(self, block: dict[str, Any], *, is_new: bool = False) -> list[Chunk]:
        """Open ``block``, unless one of its kind is open and goes on."""
        if self._kind == block["type"] and not is_new:
            return []
        chunks = self._close()
        self._index += 1
        self._kind = block["type"]
        start = {"type": "content_block_start", "index": self._index, "content_block": block}
        return [*chunks, start]

    def _delta(self, delta: dict[str, Any]) -> Chunk:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _close(self) -> list[Chunk]:
        kind, self._kind = self._kind, None
        if kind is None:
            return []
        stop = {"type": "content_block_stop", "index": self._index}
        if kind != "thinking":
            return [stop]
        return [self._delta({"type": "signature_delta", "signature": ""}), stop]


# --- replies -----------------------------------------------------------------------------------


class MessageStream:
    """Turns each event into the chunks of a stream. ``is_clamped``: the context ends the reply
    before the limit that was asked for."""

    def __init__(self, head: ReplyHead, blocks: Blocks, *, is_clamped: bool) -> None:
        self._head = head
        self._blocks = blocks
        self._is_clamped = is_clamped
        self._is_begun = False
        self._end: ChoiceDone | None = None

    def open(self) -> list[Chunk]:
        """Nothing yet: the message tells how much of the prompt was cached."""
        return []

    def feed(self, event: Event) -> list[Chunk]:
        """The chunks that ``event`` becomes; the first comes with the message itself."""
        start = [] if self._is_begun else [self._start(event)]
        self._is_begun = True
        return [*start, *self._chunks_of(event)]

    def fail(self, error: FlmError) -> list[Chunk]:
        """What ends a stream that cannot go on."""
        return [anthropic_envelope(error, self._head.id)]

    def _chunks_of(self, event: Event) -> list[Chunk]:
        match event:
            case TextDelta() | ToolCallDelta():
                return self._blocks.add(event)
            case ChoiceDone():
                self._end = event
                return self._blocks.end(is_cut=event.finish_reason in ("length", "cancel"))
            case RequestDone():
                return [self._last(event.usage), {"type": "message_stop"}]
            case ReadProgress() | PromptEcho():
                return []

    def _start(self, event: Event) -> Chunk:
        cached = event.cached_tokens if isinstance(event, ReadProgress) else 0
        prompt_len = len(self._head.prompt_ids[0])
        message = {
            "id": self._head.id,
            "type": "message",
            "role": "assistant",
            "model": self._head.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "stop_details": None,
            "container": None,
            "usage": {
                **_counts(prompt_len, cached, 0, 0),
                "cache_creation": None,
                "inference_geo": None,
                "service_tier": "standard",
            },
            **self._head.extras(),
        }
        return {"type": "message_start", "message": message}

    def _last(self, usage: Usage) -> Chunk:
        assert self._end is not None
        delta = {
            "stop_reason": self._stop_reason(self._end),
            "stop_sequence": self._end.stop_string,
            "stop_details": None,
            "container": None,
        }
        counts = _counts(
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.completion_tokens,
            usage.reasoning_tokens,
        )
        return {"type": "message_delta", "delta": delta, "usage": counts}

    def _stop_reason(self, end: ChoiceDone) -> str | None:
        if end.finish_reason == "cancel":
            # None of Anthropic's reasons is true of it, and at a pause clients ask for the rest.
            return None
        if end.finish_reason == "tool_calls":
            # A call that became text waits for no result.
            return "tool_use" if self._blocks.has_calls else "end_turn"
        if end.finish_reason == "length":
            return "model_context_window_exceeded" if self._is_clamped else "max_tokens"
        return "end_turn" if end.stop_string is None else "stop_sequence"


def _counts(prompt: int, cached: int, completion: int, reasoning: int) -> dict[str, Any]:
    """Tokens. What was read from the cache is no input here; nothing is paid for filling it."""
    return {
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": completion,
        "output_tokens_details": {"thinking_tokens": reasoning},
        "server_tool_use": None,
    }


_TEXT_OF = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "partial_json",
    "signature_delta": "signature",
}


class WholeMessage:
    """Adds up the chunks of a stream."""

    def __init__(self, stream: Chunks) -> None:
        self._stream = stream
        self._message: dict[str, Any] = {}
        self._texts: list[list[str]] = []

    @property
    def num_entries(self) -> int:
        """No token is written out on its own."""
        return 0

    def feed(self, event: Event) -> None:
        """Take one event."""
        for chunk in self._stream.feed(event):
            self._take(chunk)

    def flush(self) -> dict[str, Any]:
        """The message. Every event must have been fed."""
        for block, parts in zip(self._message["content"], self._texts, strict=True):
            text = "".join(parts)
            if block["type"] == "tool_use":
                found = read_object(text, is_cut=True)
                block["input"] = {} if found is None else found
            else:
                block[block["type"]] = text
        return self._message

    def _take(self, chunk: Chunk) -> None:
        match chunk["type"]:
            case "message_start":
                self._message = chunk["message"]
            case "content_block_start":
                self._message["content"].append(chunk["content_block"])
                self._texts.append([])
            case "content_block_delta":
                delta = chunk["delta"]
                self._texts[chunk["index"]].append(delta[_TEXT_OF[delta["type"]]])
            case "message_delta":
                self._message.update(chunk["delta"])
                self._message["usage"].update(chunk["usage"])
