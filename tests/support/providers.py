"""Scripted providers behind httpx's transport: what was sent is kept, what is answered is given."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import httpx

from flm.router import LMRouter, RouterConfig

KEYS = {
    "ANTHROPIC_API_KEY": "k-anthropic",
    "OPENAI_API_KEY": "k-openai",
    "GEMINI_API_KEY": "k-gemini",
    "GROQ_API_KEY": "k-groq",
    "OPENROUTER_API_KEY": "k-openrouter",
    "DEEPSEEK_API_KEY": "k-deepseek",
    "XAI_API_KEY": "k-xai",
    "MISTRAL_API_KEY": "k-mistral",
}
CODEX_KEY = {"openai-codex": "k-codex"}


class Chunks(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body in pieces; counts what was read and knows whether it was closed."""

    def __init__(self, chunks: Iterable[bytes], error: Exception | None = None) -> None:
        self._chunks = list(chunks)
        self._error = error
        self.num_read = 0
        self.is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.num_read += 1
            yield chunk
        if self._error is not None:
            raise self._error

    async def __aiter__(self) -> Any:
        for chunk in self:
            yield chunk

    def close(self) -> None:
        self.is_closed = True

    async def aclose(self) -> None:
        self.is_closed = True


class Scripted(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers with the given replies in order, the last one again and again."""

    def __init__(self, *replies: "Reply") -> None:
        self._replies = list(replies)
        self.requests: list[httpx.Request] = []
        self.streams: list[Chunks] = []

    @property
    def num_sent(self) -> int:
        return len(self.requests)

    @property
    def body(self) -> dict[str, Any]:
        """The body of the last request."""
        body: dict[str, Any] = json.loads(self.requests[-1].content)
        return body

    def _next(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        if isinstance(reply, Exception):
            raise reply
        stream = Chunks(reply.chunks, reply.error)
        self.streams.append(stream)
        return httpx.Response(reply.status, headers=reply.headers, stream=stream)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return self._next(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        return self._next(request)


class ReplyData:
    """Status, headers and the pieces of a body."""

    def __init__(
        self,
        chunks: Iterable[bytes],
        status: int = 200,
        headers: dict[str, str] | None = None,
        error: Exception | None = None,
    ) -> None:
        self.chunks = list(chunks)
        self.status = status
        self.headers = headers if headers is not None else {}
        self.error = error


Reply = ReplyData | Exception


def whole(data: Any, status: int = 200, **headers: str) -> ReplyData:
    """A JSON reply."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ReplyData(
        [json.dumps(data).encode()], status, {"content-type": "application/json", **named}
    )


def lines(*events: Any) -> bytes:
    """Server-sent events; strings go as they are."""
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def streamed(*events: Any) -> ReplyData:
    """A stream of events, each in a chunk of its own."""
    return ReplyData(
        [lines(event) for event in events], headers={"content-type": "text/event-stream"}
    )


def router_of(transport: httpx.BaseTransport | None, **settings: Any) -> LMRouter:
    """A router with keys for every provider."""
    return LMRouter(
        RouterConfig(
            **{"env": KEYS, "api_keys": CODEX_KEY, "transport": transport, **settings},
        )
    )


# --- replies that say a text ---------------------------------------------------------------------


def anthropic_reply(text: str, *, stop_reason: str = "end_turn") -> ReplyData:
    return whole(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-haiku-4-5",
            "content": [{"type": "text", "text": text}],
            "stop_reason": stop_reason,
            "usage": {"input_tokens": 30, "output_tokens": 20},
        }
    )


def chat_reply(text: str, *, finish_reason: str = "stop", **more: Any) -> ReplyData:
    return whole(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text},
                    "finish_reason": finish_reason,
                }
            ],
            "usage": {"prompt_tokens": 30, "completion_tokens": 20, "total_tokens": 50},
            **more,
        }
    )


def chat_events(*texts: str, finish_reason: str = "stop") -> list[Any]:
    """The events of a chat stream that says ``texts``."""
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m"}
    said: list[Any] = [
        {**base, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
        for text in texts
    ]
    end = {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return [*said, end, {**base, "choices": [], "usage": usage}, "[DONE]"]


def responses_reply(text: str) -> ReplyData:
    return whole(responses_object(text))


def responses_object(text: str, status: str = "completed", **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {
        "id": "resp_1",
        "object": "response",
        "model": "gpt-4.1",
        "status": status,
        "output": [{"type": "message", "role": "assistant", "content": [part]}],
        "usage": {"input_tokens": 30, "output_tokens": 20, "total_tokens": 50},
        **more,
    }


def responses_events(*texts: str, end: str = "completed", **more: Any) -> list[Any]:
    """The events of a Responses stream that says ``texts`` and ends as ``end``."""
    created = {"id": "resp_1", "model": "gpt-4.1", "status": "in_progress"}
    deltas = [
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text}
        for text in texts
    ]
    last = responses_object("".join(texts), end, **more)
    return [
        {"type": "response.created", "response": created},
        *deltas,
        {"type": f"response.{end}", "response": last},
    ]


def gemini_reply(text: str) -> ReplyData:
    return whole(gemini_event(text, finish="STOP"))


def gemini_event(text: str, finish: str | None = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": text}]}}
    if finish is not None:
        candidate["finishReason"] = finish
    return {
        "responseId": "g1",
        "modelVersion": "gemini-2.5-flash",
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": 30,
            "candidatesTokenCount": 20,
            "totalTokenCount": 50,
        },
    }


def anthropic_events(*texts: str, stop_reason: str = "end_turn") -> list[Any]:
    """The events of an Anthropic stream that says ``texts``."""
    message = {
        "id": "msg_1",
        "model": "claude-haiku-4-5",
        "usage": {"input_tokens": 3, "output_tokens": 1},
    }
    block = {"type": "text", "text": ""}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "ping"},
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": text},
            }
            for text in texts
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason},
            "usage": {"output_tokens": 2},
        },
        {"type": "message_stop"},
    ]
