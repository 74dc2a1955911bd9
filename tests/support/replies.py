"""Replies of the server, whole or streamed, folded into one shape that can be compared."""

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


@dataclass(slots=True)
class Call:
    """A tool call. ``num_parts`` is the number of deltas that it came in."""

    id: str
    name: str
    arguments: str = ""
    num_parts: int = 0


@dataclass(slots=True)
class Choice:
    """One choice as the client ends up with it."""

    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)


@dataclass(slots=True)
class Reply:
    """A whole reply. ``usage`` holds the counts, not the times."""

    choices: list[Choice]
    usage: dict[str, Any] | None = None
    adaptations: list[dict[str, Any]] = field(default_factory=list)
    prompt_token_ids: Any = None

    @property
    def text(self) -> str:
        """The text of the only choice."""
        assert len(self.choices) == 1
        return self.choices[0].text

    @property
    def texts(self) -> list[str]:
        """The text of every choice."""
        return [choice.text for choice in self.choices]

    @property
    def cached_tokens(self) -> int:
        """How much of the prompt came from the cache."""
        assert self.usage is not None
        cached: int = self.usage["cached_tokens"]
        return cached


def path_of(body: Mapping[str, Any]) -> str:
    """Where a body goes: it has messages or a prompt."""
    return CHAT if "messages" in body else COMPLETIONS


def whole(client: httpx.Client, **body: Any) -> Reply:
    """The reply to ``body``, not streamed."""
    return parse_whole(client.post(path_of(body), json=body))


def streamed(client: httpx.Client, **body: Any) -> Reply:
    """The reply to ``body``, streamed and put together again."""
    sent = {"stream": True, "stream_options": {"include_usage": True}, **body}
    reply = client.post(path_of(body), json=sent)
    assert reply.status_code == 200, reply.text
    return fold(events_of(reply.text.splitlines()))


async def awhole(client: httpx.AsyncClient, **body: Any) -> Reply:
    """As ``whole``."""
    return parse_whole(await client.post(path_of(body), json=body))


async def astreamed(client: httpx.AsyncClient, **body: Any) -> Reply:
    """As ``streamed``."""
    sent = {"stream": True, "stream_options": {"include_usage": True}, **body}
    async with client.stream("POST", path_of(body), json=sent) as reply:
        assert reply.status_code == 200
        return fold([event async for event in aevents_of(reply)])


def parse_whole(reply: httpx.Response) -> Reply:
    """A JSON reply."""
    assert reply.status_code == 200, reply.text
    data = reply.json()
    choices = [Choice() for _ in data["choices"]]
    for item in data["choices"]:
        _take(choices[item["index"]], item)
    assert [item["index"] for item in data["choices"]] == list(range(len(choices)))
    return Reply(choices, _counts(data["usage"]), data.get("adaptations", []), _prompt_ids(data))


def events_of(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The chunks of a stream; it must end with ``[DONE]`` and hold only data and comments."""
    done = False
    for line in lines:
        if line == "" or line.startswith(":"):
            continue
        assert line.startswith("data: "), line
        assert not done, "something follows [DONE]"
        if line == "data: [DONE]":
            done = True
        else:
            yield json.loads(line.removeprefix("data: "))
    assert done, "the stream ended without [DONE]"


async def aevents_of(reply: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """As ``events_of``, of a reply that is still coming."""
    lines = [line async for line in reply.aiter_lines()]
    for event in events_of(lines):
        yield event


def fold(chunks: Iterable[dict[str, Any]]) -> Reply:
    """Put a stream together."""
    found: dict[int, Choice] = {}
    whole = Reply([])
    for number, chunk in enumerate(chunks):
        assert "error" not in chunk, chunk
        if "adaptations" in chunk:
            assert number == 0
            whole.adaptations = chunk["adaptations"]
        if chunk["usage"] is not None:
            assert whole.usage is None
            assert chunk["choices"] == []
            whole.usage = _counts(chunk["usage"])
        if (ids := _prompt_ids(chunk)) is not None:
            whole.prompt_token_ids = ids
        for item in chunk["choices"]:
            choice = found.setdefault(item["index"], Choice())
            assert choice.finish_reason is None, "a choice goes on after its end"
            _take(choice, item)
    whole.choices = [found[index] for index in sorted(found)]
    return whole


def _take(choice: Choice, item: Mapping[str, Any]) -> None:
    part = item.get("message", item.get("delta"))
    text = item.get("text") if part is None else part.get("content")
    choice.text += text if text is not None else ""
    choice.reasoning += (part or {}).get("reasoning_content") or ""
    for position, call in enumerate(part.get("tool_calls", ()) if part is not None else ()):
        _take_call(choice.calls, call, call.get("index", position))
    choice.finish_reason = item["finish_reason"]
    choice.token_ids += item.get("token_ids", [])
    logprobs = item["logprobs"]
    if logprobs is None:
        return
    if "content" in logprobs:
        choice.logprobs += logprobs["content"]
    else:
        columns = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        choice.logprobs += zip(*(logprobs[name] for name in columns), strict=True)


def _take_call(calls: list[Call], item: Mapping[str, Any], index: int) -> None:
    """A call, or the next part of one: its name comes first and once, calls one after the other."""
    function = item["function"]
    if "id" in item:
        assert index == len(calls), "calls come in order"
        assert item["type"] == "function"
        calls.append(Call(item["id"], function["name"]))
    assert index == len(calls) - 1, "calls come one after the other"
    calls[index].arguments += function["arguments"]
    calls[index].num_parts += 1


def _prompt_ids(data: Mapping[str, Any]) -> Any:
    if "prompt_token_ids" in data:
        return data["prompt_token_ids"]
    return next(
        (item["prompt_token_ids"] for item in data["choices"] if "prompt_token_ids" in item), None
    )


def _counts(usage: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{name: usage[name] for name in COUNTS},
        "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"],
        "reasoning_tokens": usage["completion_tokens_details"]["reasoning_tokens"],
    }
