"""Whole replies and streams say the same, in the shapes that clients know."""

import json
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.server.chat_reply import ChatDialect
from flm.server.completion_reply import CompletionDialect
from flm.server.context import ServerContext
from flm.server.responses import (
    ChunkedReply,
    FullReply,
    ReplyHead,
    usage_dict,
)
from flm.server.schemas.replies import ChatChunk, ChatReply, CompletionReply, UsageReply
from flm.types import (
    LOWEST_LOGPROB,
    ChoiceDone,
    Drafts,
    Event,
    PromptEcho,
    RequestDone,
    TextDelta,
    TokenLogprob,
    TopLogprob,
    Usage,
)
from tests.server.conftest import HELLO, events_of, in_process
from tests.support.fake_service import FakeService, Script

USAGE = Usage(10, 5, 4, 2, 64, 30, 4096, 0.5, 2.0, 4.0)


def token(text: str, logprob: float | None = -0.5, raw: bytes | None = None) -> TokenLogprob:
    top = (TopLogprob(1, "x", b"x", -1.5),)
    return TokenLogprob(0, text, text.encode() if raw is None else raw, logprob, top)


def head(num_choices: int = 1, **fields: Any) -> ReplyHead:
    return ReplyHead("id-1", "m", 5, ((1, 2),), num_choices, **fields)


# --- stream = whole ----------------------------------------------------------------------------

deltas = st.builds(
    TextDelta,
    index=st.integers(0, 1),
    text=st.text(max_size=3),
    channel=st.sampled_from(["content", "reasoning"]),
    token_ids=st.lists(st.integers(0, 9), max_size=2).map(tuple),
    logprobs=st.lists(st.text(min_size=1, max_size=2).map(token), max_size=2).map(tuple),
)


def merged_chat(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    merged: list[dict[str, Any]] = [
        {"content": "", "reasoning": "", "ids": [], "logprobs": [], "reason": None, "roles": 0}
        for _ in range(2)
    ]
    for chunk in chunks:
        for choice in chunk["choices"]:
            one, delta = merged[choice["index"]], choice["delta"]
            one["content"] += delta.get("content", "")
            one["reasoning"] += delta.get("reasoning_content", "")
            one["roles"] += "role" in delta
            one["ids"] += choice.get("token_ids", ())
            one["logprobs"] += (choice["logprobs"] or {"content": []})["content"]
            one["reason"] = choice["finish_reason"] or one["reason"]
    return merged


@given(st.lists(deltas, max_size=8), st.booleans(), st.booleans())
def test_a_chat_stream_adds_up_to_the_whole_reply(
    events: list[Event], with_logprobs: bool, with_ids: bool
) -> None:
    flags = {"with_logprobs": with_logprobs, "with_token_ids": with_ids}
    full = FullReply(head(2, **flags), ChatDialect())
    chunked = ChunkedReply(head(2, **flags), ChatDialect())
    chunks: list[dict[str, Any]] = []
    for event in [*events, ChoiceDone(1, "length"), ChoiceDone(0, "stop"), RequestDone(USAGE)]:
        full.feed(event)
        chunks += chunked.feed(event)
    for chunk in chunks:
        ChatChunk.model_validate(chunk)
    reply = full.flush()
    ChatReply.model_validate(reply)
    for choice, merged in zip(reply["choices"], merged_chat(chunks), strict=True):
        message = choice["message"]
        assert merged["content"] == message["content"]
        assert merged["reasoning"] == message.get("reasoning_content", "")
        assert merged["reason"] == choice["finish_reason"]
        assert merged["roles"] == 1
        assert merged["logprobs"] == (choice["logprobs"] or {"content": []})["content"]
        assert merged["ids"] == list(choice.get("token_ids", ()))


@given(st.lists(deltas, max_size=8), st.booleans())
def test_a_completion_stream_adds_up_to_the_whole_reply(
    events: list[Event], with_logprobs: bool
) -> None:
    events = [event for event in events if isinstance(event, TextDelta) and event.index == 0]
    flags: dict[str, Any] = {"with_logprobs": with_logprobs, "with_token_ids": True}
    full = FullReply(head(**flags), CompletionDialect())
    chunked = ChunkedReply(head(**flags), CompletionDialect())
    entries = (token("a", None), token("é"))
    chunks: list[dict[str, Any]] = []
    content = [event for event in events if event.channel == "content"]
    for event in [
        PromptEcho(0, "aé", (1, 2), entries),
        *content,
        ChoiceDone(0, "stop"),
        RequestDone(USAGE),
    ]:
        full.feed(event)
        chunks += chunked.feed(event)
    reply = full.flush()["choices"][0]
    parts = [chunk["choices"][0] for chunk in chunks]
    assert "".join(part["text"] for part in parts) == reply["text"]
    assert [part["prompt_token_ids"] for part in parts if "prompt_token_ids" in part] == [(1, 2)]
    if with_logprobs:
        for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            joined = [item for part in parts if part["logprobs"] for item in part["logprobs"][key]]
            assert joined == reply["logprobs"][key]


# --- log probabilities -------------------------------------------------------------------------


def test_no_probability_and_partial_characters() -> None:
    entry = TokenLogprob(
        5,
        "\ufffd",
        b"\xf0\x9f",
        LOWEST_LOGPROB,
        (TopLogprob(6, "\ufffd", b"\xf0", -1.0), TopLogprob(7, "a", b"a", LOWEST_LOGPROB)),
    )
    delta = TextDelta(0, "", "content", (5,), (entry,))
    chat = ChunkedReply(head(with_logprobs=True), ChatDialect()).feed(delta)
    position = chat[-1]["choices"][0]["logprobs"]["content"][0]
    assert (position["logprob"], position["bytes"]) == (-9999.0, [0xF0, 0x9F])
    text = ChunkedReply(head(with_logprobs=True), CompletionDialect()).feed(delta)
    legacy = text[-1]["choices"][0]["logprobs"]
    assert legacy["tokens"] == ["bytes:\\xf0\\x9f"]
    assert legacy["top_logprobs"] == [
        {"bytes:\\xf0": -1.0, "a": -9999.0, "bytes:\\xf0\\x9f": -9999.0}
    ]


def test_usage() -> None:
    assert usage_dict(USAGE) == {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
        "kv_token_occupancy_rate_percentage": 100 * 15 / 64,
        "active_kv_tokens": 30,
        "max_kv_token_capacity": 4096,
        "load_duration": 0.5,
        "prefill_duration_ttft": 2.0,
        "decoding_duration": 4.0,
        "prefill_speed_tps": 3.0,
        "decoding_speed_tps": 1.0,
    }
    guessed = usage_dict(replace(USAGE, drafts=Drafts(9, 4)))
    assert guessed["completion_tokens_details"] == {
        "reasoning_tokens": 2,
        "accepted_prediction_tokens": 4,
        "rejected_prediction_tokens": 5,
    }
    UsageReply.model_validate(guessed)
    nothing = usage_dict(Usage(0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0))
    assert nothing["prefill_speed_tps"] == nothing["decoding_speed_tps"] == 0.0


# --- over HTTP ---------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_chat_reply(client: httpx.AsyncClient) -> None:
    reply = await client.post("/v1/chat/completions", json={"messages": HELLO})
    body = reply.json()
    ChatReply.model_validate(body)
    assert body["id"].startswith("chatcmpl-")
    assert len(body["id"]) == len("chatcmpl-") + 24
    assert reply.headers["x-request-id"] == body["id"]
    assert body["model"] == "fake:1b"
    assert body["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Hello, world!",
                "refusal": None,
                "annotations": [],
            },
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert not {"system_fingerprint", "adaptations", "prompt_token_ids"} & body.keys()


@pytest.mark.anyio
async def test_a_completion_reply_for_a_list_of_prompts(client: httpx.AsyncClient) -> None:
    fields = {"prompt": ["ab", "c"], "n": 2, "echo": True, "return_token_ids": True}
    reply = await client.post("/v1/completions", json={**fields, "max_tokens": 1})
    body = reply.json()
    CompletionReply.model_validate(body)
    assert body["id"].startswith("cmpl-")
    assert [choice["text"] for choice in body["choices"]] == ["abHello"] * 2 + ["cHello"] * 2
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert [choice["prompt_token_ids"] for choice in body["choices"]] == [[97, 98]] * 2 + [[99]] * 2
    assert {choice["finish_reason"] for choice in body["choices"]} == {"length"}
    assert body["usage"]["prompt_tokens"] == 3


@pytest.mark.anyio
async def test_echo_without_new_tokens(client: httpx.AsyncClient) -> None:
    fields = {"prompt": "ab", "echo": True, "max_tokens": 0, "logprobs": 1}
    choice = (await client.post("/v1/completions", json=fields)).json()["choices"][0]
    assert choice["text"] == "ab"
    assert choice["logprobs"] == {
        "tokens": ["a", "b"],
        "token_logprobs": [None, -0.5],
        "top_logprobs": [None, {"t0": -1.0, "b": -0.5}],
        "text_offset": [0, 1],
    }


@pytest.mark.anyio
async def test_reasoning_has_a_field_of_its_own() -> None:
    service = FakeService(Script(pieces=("Hm", "m", "Yes"), num_reasoning=2))
    async with in_process(ServerContext(service)) as client:
        reply = await client.post("/v1/chat/completions", json={"messages": HELLO})
        cut = await client.post("/v1/chat/completions", json={"messages": HELLO, "max_tokens": 1})
        raw = await client.post("/v1/completions", json={"prompt": "x"})
    message = reply.json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hmm", "Yes")
    message = cut.json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm", "")
    assert raw.json()["choices"][0]["text"] == "HmmYes"


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_stream(client: httpx.AsyncClient, path: str) -> None:
    fields = {"messages": HELLO, "prompt": "hi", "stream": True, "n": 2, "return_token_ids": True}
    reply = await client.post(path, json={**fields, "stream_options": {"include_usage": True}})
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["cache-control"] == "no-cache"
    *events, done = events_of(reply.text)
    assert done == "[DONE]"
    chunks = [json.loads(event) for event in events]
    for chunk in chunks:
        (ChatChunk if "chat" in path else CompletionReply).model_validate(chunk)
    assert {chunk["id"] for chunk in chunks} == {reply.headers["x-request-id"]}
    assert len({chunk["system_fingerprint"] for chunk in chunks}) == 1
    *others, last = chunks
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 10
    assert all(chunk["usage"] is None for chunk in others)
    assert ["prompt_token_ids" in chunk for chunk in chunks] == [True] + [False] * len(others)
    # The other endpoint's field is unknown here, and the first chunk says so.
    assert ["adaptations" in chunk for chunk in chunks] == [True] + [False] * len(others)


@pytest.mark.anyio
async def test_each_stream_has_its_own_fingerprint_and_no_usage(client: httpx.AsyncClient) -> None:
    fingerprints = set()
    for _ in range(3):
        fields = {"messages": HELLO, "stream": True}
        reply = await client.post("/v1/chat/completions", json=fields)
        chunks = [json.loads(event) for event in events_of(reply.text)[:-1]]
        assert not any("usage" in chunk for chunk in chunks)
        fingerprints.add(chunks[0]["system_fingerprint"])
    assert len(fingerprints) == 3
