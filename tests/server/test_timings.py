"""Timings and progress on /v1: told to those who ask, in llama-server's shapes."""

import json
import threading
from typing import Any

import httpx
import pytest

from flm.server import exchange
from flm.server.context import ServerContext
from flm.server.errors import JSONReply
from flm.server.schemas.replies import ChatChunk, ChatReply, CompletionReply, TimingsReply
from flm.server.sse import EventStream
from flm.server.timings import timings_dict
from flm.types import Drafts, Timings
from tests.server.conftest import PATHS, body_for, events_of, in_process, post, records
from tests.support.fake_service import FakeInfo, FakeService

pytestmark = pytest.mark.anyio
CHAT, COMPLETIONS = PATHS


async def stream(client: httpx.AsyncClient, path: str, **fields: Any) -> list[dict[str, Any]]:
    reply = await client.post(path, json=body_for(path, stream=True, **fields))
    assert reply.status_code == 200, reply.text
    *events, end = events_of(reply.text)
    assert end == "[DONE]"
    chunks = [json.loads(event) for event in events]
    for chunk in chunks:
        (ChatChunk if path == CHAT else CompletionReply).model_validate(chunk)
    return chunks


def test_rates() -> None:
    assert timings_dict(Timings(10, 4, 0.5, 3, 0.25)) == {
        "cache_n": 4,
        "prompt_n": 6,
        "prompt_ms": 500.0,
        "prompt_per_token_ms": 500.0 / 6,
        "prompt_per_second": 12.0,
        "predicted_n": 3,
        "predicted_ms": 250.0,
        "predicted_per_token_ms": 250.0 / 3,
        "predicted_per_second": 12.0,
    }
    guessed = timings_dict(Timings(10, 4, 0.5, 3, 0.25, Drafts(7, 2)))
    assert (guessed["draft_n"], guessed["draft_n_accepted"]) == (7, 2)
    TimingsReply.model_validate(guessed)
    still = timings_dict(Timings(4, 4, 0.0, 0, 0.0))
    assert {value for key, value in still.items() if key != "cache_n"} == {0}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("field", ["return_timings", "timings_per_token"])
async def test_a_whole_reply_has_timings_when_asked(
    client: httpx.AsyncClient, path: str, field: str
) -> None:
    reply = (await post(client, path, **{field: True})).json()
    (ChatReply if path == CHAT else CompletionReply).model_validate(reply)
    assert reply["timings"]["predicted_n"] == reply["usage"]["completion_tokens"] == 5
    assert reply["timings"]["prompt_ms"] == 250.0
    for fields in ({}, {field: False}):
        assert "timings" not in (await post(client, path, **fields)).json()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("with_usage", [False, True])
async def test_the_last_chunk_has_the_timings(
    client: httpx.AsyncClient, path: str, with_usage: bool
) -> None:
    options = {"stream_options": {"include_usage": with_usage}}
    plain = await stream(client, path, n=2, **options)
    chunks = await stream(client, path, n=2, return_timings=True, **options)
    assert ["timings" in chunk for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1]["timings"]["predicted_n"] == 10
    strip = ("id", "created", "system_fingerprint", "timings")
    for one, other in zip(plain, chunks, strict=True):
        for key in strip:
            one.pop(key, None), other.pop(key, None)
        assert one == other


@pytest.mark.parametrize("path", PATHS)
async def test_every_chunk_has_the_timings_so_far(client: httpx.AsyncClient, path: str) -> None:
    chunks = await stream(client, path, timings_per_token=True)
    has_text = [
        chunk
        for chunk in chunks
        if chunk["choices"][0].get("text") or chunk["choices"][0].get("delta", {}).get("content")
    ]
    assert len(has_text) == 5
    assert all(chunk["timings"]["predicted_n"] == 1 for chunk in has_text)
    assert chunks[-1]["timings"]["predicted_n"] == 5


@pytest.mark.parametrize("path", PATHS)
async def test_progress_comes_before_the_text(client: httpx.AsyncClient, path: str) -> None:
    prompt = "x" * 40
    fields: dict[str, Any] = (
        {"prompt": prompt}
        if path == COMPLETIONS
        else {"messages": [{"role": "user", "content": prompt}]}
    )
    chunks = await stream(client, path, **fields, return_progress=True, repeat_last=1)
    told = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    assert all("prompt_progress" in chunk for chunk in chunks[: len(told)])
    assert [item["processed"] for item in told][:2] == [16, 32]
    assert told[-1]["processed"] == told[-1]["total"] > 32
    assert [index for index, chunk in enumerate(chunks) if "adaptations" in chunk] == [0]
    if path == CHAT:
        roles = [chunk["choices"][0]["delta"].get("role") for chunk in chunks]
        assert roles == ["assistant", *[None] * (len(chunks) - 1)]
    without = await stream(client, path, **fields)
    assert not any("prompt_progress" in chunk for chunk in without)


async def test_progress_needs_a_stream(client: httpx.AsyncClient) -> None:
    told = records(await post(client, CHAT, return_progress=True))
    assert told["return_progress"]["action"] == "dropped"
    assert records(await post(client, CHAT, return_progress=False)) == {}


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_long_echo_is_written_out_off_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    threads: dict[int, threading.Thread] = {}

    class Noting(JSONReply):
        def render(self, content: Any) -> bytes:
            threads[len(content["choices"][0]["text"])] = threading.current_thread()
            return super().render(content)

    real = EventStream.frames

    def noting(stream: EventStream, chunks: Any) -> bytes:
        for chunk in chunks:
            if chunk.get("choices") and chunk["choices"][0]["text"].startswith("x"):
                threads[len(chunk["choices"][0]["text"])] = threading.current_thread()
        return real(stream, chunks)

    monkeypatch.setattr(exchange, "JSONReply", Noting)
    monkeypatch.setattr(EventStream, "frames", noting)
    service: Any = FakeService(infos=(FakeInfo("fake:1b", context_len=8192),))
    async with in_process(ServerContext(service)) as client:
        for length in (10, 3000):
            body = {"prompt": "x" * length, "echo": True, "logprobs": 1, "max_tokens": 0}
            reply = await client.post(COMPLETIONS, json={**body, "stream": streamed})
            assert reply.status_code == 200
    main = threading.main_thread()
    assert (threads[10] is main, threads[3000] is main) == (True, False)
