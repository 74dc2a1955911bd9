"""Replies of ``POST /v1/responses``: one state that events change, and the events it tells of.

A whole reply is the state at the end, so a stream and a whole reply cannot differ.
"""

from collections.abc import Mapping
from typing import Any

from flm.errors import FlmError
from flm.server.admission import Admitted
from flm.server.framing import NAMED_EVENTS
from flm.server.open_responses_output import OutputItem, call_item, message_item, reasoning_item
from flm.server.response_store import ResponseStore
from flm.server.responses import ReplyHead, now, usage_dict
from flm.server.schemas.open_responses import ResponsesBody
from flm.server.schemas.open_responses_tools import echoed_choice
from flm.types import (
    ChoiceDone,
    Event,
    FinishReason,
    RequestDone,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)

_STATUS_OF: Mapping[FinishReason, str] = {"length": "incomplete", "cancel": "cancelled"}


class ResponsesFormat:
    """Responses, kept in ``store`` where their requests allow it."""

    framing = NAMED_EVENTS

    def __init__(self, store: ResponseStore) -> None:
        self._store = store

    def whole(self, head: ReplyHead, admission: Admitted) -> "WholeResponse":
        """One response object."""
        return WholeResponse(ResponseEvents(head, admission, self._store))

    def chunks(self, head: ReplyHead, admission: Admitted) -> "ResponseEvents":
        """Events by name."""
        return ResponseEvents(head, admission, self._store)


class WholeResponse:
    """The response that a stream ends with."""

    def __init__(self, events: "ResponseEvents") -> None:
        self._events = events
        self._last: Event | None = None

    @property
    def num_entries(self) -> int:
        """Log probabilities, and what is written out to be kept."""
        return self._events.num_entries

    def feed(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, RequestDone):
            # To keep a long conversation takes a while: that belongs into the thread of ``flush``.
            self._last = event
        else:
            self._events.feed(event)

    def flush(self) -> dict[str, Any]:
        """The response. Every event must have been fed."""
        assert self._last is not None
        last = self._events.feed(self._last)[-1]
        return dict(last["response"])


class ResponseEvents:
    """Turns each event into the events of a stream."""

    def __init__(self, head: ReplyHead, admission: Admitted, store: ResponseStore) -> None:
        body = admission.call.body
        assert isinstance(body, ResponsesBody)
        self._head = head
        self._body = body
        self._store = store
        self._writes_cache = admission.decided.prepared.request.cache_prompt
        self._echo = _echo(body, admission)
        self._items: list[OutputItem] = []
        # Tokens without text, in front of the message that they may belong to.
        self._waiting: list[dict[str, Any]] = []
        self._status = "completed"
        self._has_begun = False
        self._number = 0

    @property
    def num_entries(self) -> int:
        """About how many tokens the last event writes out."""
        kept = sum(map(len, self._head.prompt_ids)) if self._body.given.is_kept else 0
        return kept + sum(item.num_logprobs for item in self._items)

    def open(self) -> list[dict[str, Any]]:
        """The response before anything of it is there."""
        return self._begin()

    def feed(self, event: Event) -> list[dict[str, Any]]:
        """The events that ``event`` becomes."""
        chunks = self._begin()
        if isinstance(event, TextDelta):
            chunks += self._on_text(event)
        elif isinstance(event, ToolCallDelta):
            chunks += self._on_call(event)
        elif isinstance(event, ChoiceDone):
            chunks += self._on_end(event)
        elif isinstance(event, RequestDone):
            chunks += self._finish(event.usage)
        return chunks

    def fail(self, error: FlmError) -> list[dict[str, Any]]:
        """What ends a stream that cannot go on: the error, and the response that failed."""
        if self._open is not None:
            self._open.status = "incomplete"
        told = error.to_dict()["error"]
        # The codes that the API has for failures say nothing of ours.
        failure = {"error": {"code": "server_error", "message": error.message}}
        response = self._response("failed", failure | self._told_at_the_ends)
        self._keep(response)
        return [
            *self._begin(),
            self._event("error", {"error": told}),
            self._event("response.failed", {"response": response}),
        ]

    # --- the course of a reply -------------------------------------------------------------

    def _begin(self) -> list[dict[str, Any]]:
        if self._has_begun:
            return []
        self._has_begun = True
        first = self._response("in_progress", self._told_at_the_ends)
        return [
            self._event("response.created", {"response": first}),
            self._event("response.in_progress", {"response": self._response("in_progress", {})}),
        ]

    def _on_text(self, event: TextDelta) -> list[dict[str, Any]]:
        kind = "reasoning" if event.channel == "reasoning" else "message"
        logprobs = [_logprob(entry) for entry in event.logprobs]
        if not event.text and not (self._open is not None and self._open.kind == kind):
            self._waiting += logprobs if kind == "message" and not self._items else []
            return []
        if kind == "reasoning":
            chunks = self._opened(None if self._is_open(kind) else reasoning_item())
            return [*chunks, *self._more(event.text, [])]
        chunks = self._opened(None if self._is_open(kind) else message_item())
        waited, self._waiting = self._waiting, []
        return [*chunks, *self._more(event.text, waited + logprobs)]

    def _on_call(self, event: ToolCallDelta) -> list[dict[str, Any]]:
        chunks: list[dict[str, Any]] = []
        if event.id is not None and event.name is not None:
            chunks = self._opened(call_item(event.id, event.name))
        return [*chunks, *self._more(event.arguments, [])]

    def _on_end(self, event: ChoiceDone) -> list[dict[str, Any]]:
        self._status = _STATUS_OF.get(event.finish_reason, "completed")
        chunks: list[dict[str, Any]] = []
        if not self._items:
            # A reply that says nothing says so.
            chunks = [*self._opened(message_item()), *self._more("", self._waiting)]
        return [*chunks, *self._close("incomplete" if self._is_cut else "completed")]

    @property
    def _is_cut(self) -> bool:
        return self._status != "completed"

    def _finish(self, usage: Usage) -> list[dict[str, Any]]:
        is_incomplete = self._status == "incomplete"
        details = {"incomplete_details": {"reason": "max_output_tokens"}} if is_incomplete else {}
        done = {
            "completed_at": None if self._is_cut else now(),
            "usage": responses_usage(usage, writes_cache=self._writes_cache),
            **details,
            **self._told_at_the_ends,
        }
        response = self._response(self._status, done)
        self._keep(response)
        # Clients wait for one of a few last events; none of these is named after a cancelled one.
        event = "response.incomplete" if self._is_cut else "response.completed"
        return [self._event(event, {"response": response})]

    def _keep(self, response: dict[str, Any]) -> None:
        """Keep the last form of the response, whatever it came to: its first events said so."""
        if self._body.given.is_kept:
            self._store.put(response, self._body.given.items)

    # --- items -----------------------------------------------------------------------------

    @property
    def _open(self) -> OutputItem | None:
        return self._items[-1] if self._items and self._items[-1].is_open else None

    def _is_open(self, kind: str) -> bool:
        return self._open is not None and self._open.kind == kind

    def _opened(self, item: OutputItem | None) -> list[dict[str, Any]]:
        """Close the item that is open and begin ``item``; None: it goes on."""
        if item is None:
            return []
        chunks = self._close("completed")
        self._items.append(item)
        place = {"output_index": len(self._items) - 1}
        chunks.append(self._event("response.output_item.added", place | {"item": item.to_dict()}))
        if item.part is not None:
            part = self._place_of(item) | {"part": item.part}
            chunks.append(self._event("response.content_part.added", part))
        return chunks

    def _more(self, text: str, logprobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        item = self._open
        if item is None or not (text or logprobs):
            return []
        item.add(text, logprobs)
        told = {"logprobs": logprobs} if item.kind == "message" else {}
        delta = self._place_of(item) | {"delta": text} | told
        return [self._event(f"{item.event}.delta", delta)]

    def _close(self, status: str) -> list[dict[str, Any]]:
        item = self._open
        if item is None:
            return []
        item.status = status
        place = self._place_of(item)
        chunks = [self._event(f"{item.event}.done", place | item.whole)]
        if item.part is not None:
            chunks.append(self._event("response.content_part.done", place | {"part": item.part}))
        done = {"output_index": place["output_index"], "item": item.to_dict()}
        return [*chunks, self._event("response.output_item.done", done)]

    def _place_of(self, item: OutputItem) -> dict[str, Any]:
        place = {"item_id": item.id, "output_index": self._items.index(item)}
        return place if item.part is None else place | {"content_index": 0}

    # --- what is sent ----------------------------------------------------------------------

    @property
    def _told_at_the_ends(self) -> dict[str, Any]:
        if not self._head.adaptations:
            return {}
        return {"adaptations": [entry.to_dict() for entry in self._head.adaptations]}

    def _event(self, kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return event

    def _response(self, status: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The response object as it is now."""
        return {
            "id": self._head.id,
            "object": "response",
            "created_at": self._head.created,
            "completed_at": None,
            "status": status,
            "model": self._head.model,
            "output": [item.to_dict() for item in self._items],
            "error": None,
            "incomplete_details": None,
            "usage": None,
            **self._echo,
            **fields,
        }


def _echo(body: ResponsesBody, admission: Admitted) -> dict[str, Any]:
    """Every setting of the request, with the value in force."""
    settings = admission.generation.snapshot.settings
    prepared = admission.decided.prepared
    asked = prepared.request.max_tokens
    return {
        "background": False,
        "frequency_penalty": settings.sampling.frequency_penalty,
        "instructions": body.instructions,
        "max_output_tokens": None if asked is None else min(asked, *prepared.max_new_tokens),
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata if body.metadata is not None else {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "presence_penalty": settings.sampling.presence_penalty,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": settings.reasoning_effort, "summary": None},
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "store": body.given.is_kept,
        "temperature": settings.sampling.temperature,
        "text": {"format": _format(body), "verbosity": "medium"},
        "tool_choice": echoed_choice(body.choice),
        "tools": body.flat_tools.echoed(),
        "top_logprobs": body.num_logprobs if body.num_logprobs is not None else 0,
        "top_p": settings.sampling.top_p,
        "truncation": "disabled",
        "user": body.user,
    }


def _format(body: ResponsesBody) -> dict[str, Any]:
    asked = None if body.text is None else body.text.format
    if asked is None or asked["type"] != "json_schema":
        return {"type": "text"} if asked is None else {"type": asked["type"]}
    return {
        "type": "json_schema",
        "name": asked.get("name") if asked.get("name") is not None else "",
        "description": asked.get("description"),
        "schema": asked["schema"],
        # Whatever was asked for, the answer is held to the schema.
        "strict": True,
    }


def responses_usage(usage: Usage, *, writes_cache: bool) -> dict[str, Any]:
    """The counts under the API's names, with the server's own numbers."""
    counts = usage_dict(usage)
    written = usage.prompt_tokens - usage.cached_tokens if writes_cache else 0
    return {
        "input_tokens": counts.pop("prompt_tokens"),
        "input_tokens_details": {
            **counts.pop("prompt_tokens_details"),
            "cache_write_tokens": written,
        },
        "output_tokens": counts.pop("completion_tokens"),
        "output_tokens_details": counts.pop("completion_tokens_details"),
        **counts,
    }


def _logprob(entry: TokenLogprob) -> dict[str, Any]:
    logprob = entry.logprob if entry.logprob is not None else 0.0
    top = [_token(item.text, item.raw, item.logprob) for item in entry.top]
    return {**_token(entry.text, entry.raw, logprob), "top_logprobs": top}


def _token(text: str, raw: bytes, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(raw)}
