"""Prompts of many chunks in the log of the real program, and prompts around the context length."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import hot_folder
from tests.support.app import RunningApp
from tests.support.replies import streamed, whole
from tests.support.server import RunningServer, running_server

CHUNK_LEN = 512
CHUNK_LINE = re.compile(r"^.*Prefill chunk.*$", re.MULTILINE)


def ids(count: int, salt: int = 0) -> list[int]:
    """A prompt of ``count`` tokens that shares nothing with one of another ``salt``."""
    return [3 + (index * index + 7 * index + salt) % 500 for index in range(count)]


# --- the log -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_server(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Iterator[RunningServer]:
    model = hot_folder(tmp_path_factory.mktemp("long") / "long", max_context_len=8192)
    args = [
        str(model),
        "--dtype",
        "float32",
        "--threads",
        "1",
        "--prefill-chunk-len",
        str(CHUNK_LEN),
    ]
    with running_server(args, {"FLM_MODEL_PATH": str(store)}) as server:
        yield server


@pytest.fixture
def long_client(long_server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=long_server.base_url, timeout=120, trust_env=False) as client:
        yield client


def chunk_lines(server: RunningServer, since: int) -> list[str]:
    return CHUNK_LINE.findall(server.log()[since:])


def expected_lines(lengths: list[int]) -> list[str]:
    return [
        f"[FLM]  Prefill chunk {number}/{len(lengths)} with {length} tokens"
        for number, length in enumerate(lengths, start=1)
    ]


def test_a_prompt_of_eight_chunks(long_server: RunningServer, long_client: httpx.Client) -> None:
    body: dict[str, Any] = {"prompt": ids(7 * CHUNK_LEN + 100), "seed": 1, "max_tokens": 1}
    plan = long_client.post("/v1/completions/plan", json=body).json()
    assert plan["prefill_chunks"] == [CHUNK_LEN] * 7 + [100]
    since = len(long_server.log())
    reply = whole(long_client, **body)
    assert reply.usage is not None
    assert reply.usage["prompt_tokens"] == 7 * CHUNK_LEN + 100
    assert chunk_lines(long_server, since) == expected_lines([CHUNK_LEN] * 7 + [100])


def test_only_what_is_not_cached_is_read_in_chunks(
    long_server: RunningServer, long_client: httpx.Client
) -> None:
    start = ids(4 * CHUNK_LEN, salt=1)
    whole(long_client, prompt=start, seed=1, max_tokens=1)
    body: dict[str, Any] = {"prompt": start + ids(CHUNK_LEN + 50, salt=2), "max_tokens": 1}
    plan = long_client.post("/v1/completions/plan", json=body).json()
    since = len(long_server.log())
    reply = whole(long_client, **body)
    assert reply.cached_tokens == plan["cached_tokens"] == 4 * CHUNK_LEN
    assert plan["prefill_chunks"] == [CHUNK_LEN, 50]
    assert chunk_lines(long_server, since) == expected_lines([CHUNK_LEN, 50])


@pytest.mark.parametrize("count", [1, CHUNK_LEN - 1, CHUNK_LEN])
def test_a_short_prompt_is_one_chunk(
    long_server: RunningServer, long_client: httpx.Client, count: int
) -> None:
    since = len(long_server.log())
    whole(long_client, prompt=ids(count, salt=3), max_tokens=1, cache_prompt=False)
    assert chunk_lines(long_server, since) == expected_lines([count])


@pytest.mark.real
def test_a_long_prompt_at_the_real_model(
    real_server: RunningServer, real_client: httpx.Client
) -> None:
    text = "The lighthouse keeper wrote down the weather. " * 80
    body: dict[str, Any] = {"prompt": text, "temperature": 0, "max_tokens": 2}
    plan = real_client.post("/v1/completions/plan", json=body).json()
    assert plan["prompt_tokens"] > CHUNK_LEN
    since = len(real_server.log())
    first = whole(real_client, **body)
    rest = plan["prompt_tokens"] - CHUNK_LEN
    assert chunk_lines(real_server, since) == expected_lines([CHUNK_LEN, rest])
    since = len(real_server.log())
    again = whole(real_client, **body)
    assert again.text == first.text
    assert chunk_lines(real_server, since) == expected_lines(
        [plan["prompt_tokens"] - again.cached_tokens]
    )


# --- the context length ------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("extra", [0, 1, 3000])
def test_a_prompt_that_fills_the_context_is_refused(
    app: RunningApp, client: httpx.Client, extra: int, stream: bool
) -> None:
    context_len = app.model.info.context_len
    for suffix in ("", "/plan"):
        body = {"prompt": ids(context_len + extra), "stream": stream, "temperature": 0.25}
        reply = client.post(f"/v1/completions{suffix}", json=body)
        assert reply.status_code == 400
        assert reply.headers["content-type"] == "application/json"
        error = reply.json()["error"]
        first, _, second = error.pop("message").partition("! ")
        assert first == "Max length reached"
        assert str(context_len + extra) in second
        assert str(context_len) in second
        assert error == {
            "type": "model_error",
            "code": "context_length_exceeded",
            "param": "prompt",
        }
    settings = client.get("/v1/settings").json()["settings"]
    assert all(entry["set_by"] is None for entry in settings)


def test_a_chat_that_fills_the_context_is_refused(app: RunningApp, client: httpx.Client) -> None:
    words = "word " * (app.model.info.context_len * 2)
    for stream in (False, True):
        body = {"messages": [{"role": "user", "content": words}], "stream": stream}
        reply = client.post("/v1/chat/completions", json=body)
        assert reply.status_code == 400
        assert reply.json()["error"]["param"] == "messages"
        assert reply.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("send", [whole, streamed])
def test_one_token_of_room_is_one_token(app: RunningApp, client: httpx.Client, send: Any) -> None:
    prompt = ids(app.model.info.context_len - 1)
    reply = send(client, prompt=prompt, seed=1, ignore_eos=True, return_token_ids=True)
    assert reply.choices[0].finish_reason == "length"
    assert len(reply.choices[0].token_ids) == 1
    assert reply.usage["completion_tokens"] == 1
    assert reply.adaptations == []


def test_an_end_token_in_the_last_place_is_a_stop(app: RunningApp, client: httpx.Client) -> None:
    prompt = ids(app.model.info.context_len - 1)
    bias = {"2": 100}
    reply = whole(client, prompt=prompt, temperature=0, logit_bias=bias, return_token_ids=True)
    assert (reply.choices[0].finish_reason, reply.choices[0].token_ids) == ("stop", [2])
    assert reply.text == ""


def test_more_tokens_than_there_is_room_for_are_clamped(
    app: RunningApp, client: httpx.Client
) -> None:
    prompt = ids(app.model.info.context_len - 5)
    for name in ("max_tokens", "max_completion_tokens"):
        for send in (whole, streamed):
            reply = send(client, prompt=prompt, seed=1, ignore_eos=True, **{name: 6})
            assert reply.usage is not None
            assert reply.usage["completion_tokens"] == 5
            (entry,) = reply.adaptations
            assert entry.pop("reason")
            assert entry == {"field": name, "action": "clamped", "asked": 6, "applied": 5}
    exact = whole(client, prompt=prompt, seed=1, ignore_eos=True, max_tokens=5)
    assert exact.adaptations == []
    for asked, fits in ((5, True), (6, False)):
        body = {"prompt": prompt, "max_tokens": asked}
        plan = client.post("/v1/completions/plan", json=body).json()
        assert (plan["fits"], plan["max_new_tokens"]) == (fits, 5)
    refused = {"prompt": prompt, "max_tokens": 6, "adaptations": "refuse"}
    reply = client.post("/v1/completions", json=refused)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert (error["code"], error["param"]) == ("refused", "max_tokens")


@pytest.mark.parametrize("value", [0, -1, -(2**63)])
def test_no_limit_means_until_the_context_is_full(
    app: RunningApp, client: httpx.Client, value: int
) -> None:
    prompt = ids(app.model.info.context_len - 40)
    reply = whole(client, prompt=prompt, seed=1, ignore_eos=True, max_tokens=value)
    assert reply.usage is not None
    assert reply.usage["completion_tokens"] == 40
    assert reply.choices[0].finish_reason == "length"
    assert reply.adaptations == []


def test_an_echo_alone_may_fill_all_but_one_place(app: RunningApp, client: httpx.Client) -> None:
    prompt = ids(app.model.info.context_len - 1)
    body = {"prompt": prompt, "echo": True, "max_tokens": 0, "logprobs": 0}
    reply = whole(client, **body, return_token_ids=True)
    assert reply.usage is not None
    assert reply.usage["completion_tokens"] == 0
    assert reply.prompt_token_ids == prompt
    assert len(reply.choices[0].logprobs) == len(prompt)
    assert reply.choices[0].finish_reason == "length"
