"""Replies of ``POST /api/chat`` and ``/api/generate``, whole and in lines, in Ollama's shapes."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from flm.errors import FlmError
from flm.server.admission import Admitted
from flm.server.call_input import read_object
from flm.server.chat_reply import entry_dict
from flm.server.envelopes import ollama_envelope
from flm.server.formats import Chunks, Whole
from flm.server.framing import LINES
from flm.server.responses import ReplyHead
from flm.types import (
    ChoiceDone,
    Event,
    FinishReason,
    RequestDone,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
)


def rfc3339(nanoseconds: int) -> str:
    """A Unix time in nanoseconds as Ollama writes times."""
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def opening(model: str) -> dict[str, Any]:
    """The keys with which every line begins."""
    return {"model": model, "created_at": rfc3339(time.time_ns())}


@dataclass(slots=True)
class Call:
    """One call, as far as it has come."""

    id: str | None
    name: str | None
    arguments: str = ""

    def to_dict(self, index: int) -> dict[str, Any] | None:
        """The call as an object; None while its arguments are none."""
        arguments = read_object(self.arguments)
        if arguments is None:
            return None
        function = {"index": index, "name": self.name, "arguments": arguments}
        return {"id": self.id, "function": function}

    @property
    def as_text(self) -> str:
        """What there is of a call that was cut: it must not look like one that can be answered."""
        return f'{{"name": {json.dumps(self.name)}, "arguments": {self.arguments}'


@dataclass(slots=True)
class Stretch:
    """What was said since the last line, or all of it."""

    content: str = ""
    thinking: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    entries: list[TokenLogprob] = field(default_factory=list)

    @property
    def is_silent(self) -> bool:
        """True when nothing of it can be seen."""
        return not (self.content or self.thinking or self.calls)


class Shape(Protocol):
    """How one endpoint writes what was said."""

    has_context: bool

    def said(self, stretch: Stretch) -> dict[str, Any]:
        """The keys that hold it."""


class ChatShape:
    """A message."""

    has_context = False

    def said(self, stretch: Stretch) -> dict[str, Any]:
        """``message``, with thoughts and calls where there are any."""
        message: dict[str, Any] = {"role": "assistant", "content": stretch.content}
        if stretch.thinking:
            message["thinking"] = stretch.thinking
        if stretch.calls:
            message["tool_calls"] = stretch.calls
        return {"message": message}


class GenerateShape:
    """A text."""

    has_context = True

    def said(self, stretch: Stretch) -> dict[str, Any]:
        """``response``, and the thoughts where there are any."""
        thinking = {"thinking": stretch.thinking} if stretch.thinking else {}
        return {"response": stretch.content, **thinking}


class OllamaFormat:
    """One reply, whole or in lines."""

    framing = LINES

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def whole(self, head: ReplyHead, admission: Admitted) -> Whole:
        """Everything in one object."""
        return _WholeReply(_Facts(head, admission, self._shape))

    def chunks(self, head: ReplyHead, admission: Admitted) -> Chunks:
        """A line for each new text and each whole call, and a last one with the counts."""
        return _StreamedReply(_Facts(head, admission, self._shape))


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is known when the request is admitted."""

    head: ReplyHead
    admission: Admitted
    shape: Shape

    @property
    def is_raw(self) -> bool:
        return not self.admission.generation.prepared.request.is_chat

    @property
    def extras(self) -> dict[str, Any]:
        adaptations = [entry.to_dict() for entry in self.head.adaptations]
        return {"adaptations": adaptations} if adaptations else {}

    def line(self, stretch: Stretch) -> dict[str, Any]:
        """What was said, with the log probabilities that go with it."""
        entries = [entry_dict(entry) for entry in stretch.entries]
        logprobs = {"logprobs": entries} if entries else {}
        return {**opening(self.head.model), **self.shape.said(stretch), "done": False, **logprobs}


class _Speaker:
    """Puts events together: texts as they come, calls when they are whole."""

    def __init__(self, facts: _Facts) -> None:
        self._facts = facts
        self._call: Call | None = None
        self._call_index = -1
        self.token_ids: list[int] = []
        self.reason: FinishReason = "error"

    def hear(self, event: Event, into: Stretch) -> None:
        """Add to ``into`` what ``event`` says or completes."""
        if isinstance(event, ToolCallDelta):
            self._hear_call(event, into)
        elif isinstance(event, TextDelta):
            if event.text:
                self._end_call(into)
            self._hear_text(event, into)
        elif isinstance(event, ChoiceDone):
            self._end_call(into)
            self.reason = event.finish_reason

    def _hear_text(self, event: TextDelta, into: Stretch) -> None:
        self.token_ids += event.token_ids
        into.entries += event.logprobs
        # A raw continuation has no channels; whatever came is text.
        if event.channel == "reasoning" and not self._facts.is_raw:
            into.thinking += event.text
        else:
            into.content += event.text

    def _hear_call(self, event: ToolCallDelta, into: Stretch) -> None:
        if event.call_index != self._call_index:
            self._end_call(into)
            self._call, self._call_index = Call(event.id, event.name), event.call_index
        assert self._call is not None
        self._call.arguments += event.arguments
        self.token_ids += event.token_ids
        into.entries += event.logprobs

    def _end_call(self, into: Stretch) -> None:
        if self._call is None:
            return
        call, self._call = self._call, None
        found = call.to_dict(self._call_index)
        if found is None:
            into.content += call.as_text
        else:
            into.calls.append(found)

    def ending(self, event: RequestDone) -> dict[str, Any]:
        """The keys of the last line."""
        facts, usage, timings = self._facts, event.usage, event.usage.timings
        call, decided = facts.admission.call, facts.admission.decided
        context: dict[str, Sequence[int]] = {}
        if facts.shape.has_context and not facts.is_raw:
            context["context"] = [*facts.head.prompt_of(0), *self.token_ids]
        return {
            "done": True,
            "done_reason": "stop" if self.reason == "tool_calls" else self.reason,
            **context,
            "total_duration": _ns(time.monotonic() - call.arrived_at),
            "load_duration": _ns(decided.lease_duration),
            "prompt_eval_count": usage.prompt_tokens,
            "prompt_eval_duration": _ns(timings.prefill_duration),
            "eval_count": usage.completion_tokens,
            "eval_duration": _ns(timings.decoding_duration),
        }


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


class _WholeReply:
    """Gathers the events of the reply."""

    def __init__(self, facts: _Facts) -> None:
        self._facts = facts
        self._speaker = _Speaker(facts)
        self._said = Stretch()
        self._ending: dict[str, Any] = {}

    @property
    def num_entries(self) -> int:
        """Tokens of the context and log probabilities."""
        return len(self._ending.get("context", ())) + len(self._said.entries)

    def feed(self, event: Event) -> None:
        """Take one event."""
        self._speaker.hear(event, self._said)
        if isinstance(event, RequestDone):
            self._ending = self._speaker.ending(event)

    def flush(self) -> dict[str, Any]:
        """The reply. Every event must have been fed."""
        return {**self._facts.line(self._said), **self._ending, **self._facts.extras}


class _StreamedReply:
    """Sends text as it comes. What says nothing waits for the next line."""

    def __init__(self, facts: _Facts) -> None:
        self._facts = facts
        self._speaker = _Speaker(facts)
        self._held = Stretch()
        self._extras = facts.extras

    def open(self) -> list[dict[str, Any]]:
        """What a stream begins with: nothing before there is some text."""
        return []

    def feed(self, event: Event) -> list[dict[str, Any]]:
        """The lines that ``event`` becomes."""
        self._speaker.hear(event, self._held)
        is_last = isinstance(event, RequestDone)
        if self._held.is_silent and not is_last:
            return []
        ending = self._speaker.ending(event) if isinstance(event, RequestDone) else {}
        line = {**self._facts.line(self._held), **ending, **self._extras}
        self._held, self._extras = Stretch(), {}
        return [line]

    def fail(self, error: FlmError) -> list[dict[str, Any]]:
        """What ends a stream that cannot go on."""
        return [ollama_envelope(error, self._facts.head.id)]
