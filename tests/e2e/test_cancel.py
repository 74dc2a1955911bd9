"""A cancelled request ends at once, says what it said so far, and gives back all that it held."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import tiny_config
from tests.server.conftest import events_of
from tests.support.app import RunningApp, running_app, wait_until

LONG: dict[str, Any] = {"ignore_eos": True, "seed": 1, "max_tokens": 1900}
CHAT = "/v1/chat/completions"


def post(app: RunningApp, path: str, body: dict[str, Any]) -> httpx.Response:
    with app.client() as client:
        return client.post(path, json=body)


def cancel(client: httpx.Client, name: str) -> bool:
    reply = client.post("/api/cancel", json={"request_id": name})
    assert reply.status_code == 200
    return bool(reply.json()["cancelled"])


@contextmanager
def asked(app: RunningApp, path: str, *bodies: dict[str, Any]) -> Iterator[list[Any]]:
    """Requests that are under way, each in a thread of its own."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        yield [pool.submit(post, app, path, body) for body in bodies]


def num_running(app: RunningApp) -> int:
    return app.model.engine.stats().num_running


def test_a_running_stream_ends_and_its_kv_is_free(app: RunningApp, client: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], **LONG, "stream": True}
    with app.client() as own, own.stream("POST", CHAT, json={**body, "request_id": "x"}) as reply:
        lines = reply.iter_lines()
        told = [next(lines) for _ in range(12)]
        assert app.model.engine.stats().active_kv_tokens > 0
        assert cancel(client, "x")
        told += list(lines)
    *chunks, end = events_of("\n".join(told) + "\n")
    assert end == "[DONE]"
    choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
    assert choices[-1]["finish_reason"] == "cancel"
    text = "".join(choice["delta"].get("content", "") for choice in choices)
    assert text
    app.wait_until_idle()
    assert not cancel(client, "x")
    # What was said is the beginning of what would have been said.
    whole = post(app, CHAT, {**body, "stream": False, "max_tokens": len(chunks) + 40}).json()
    assert whole["choices"][0]["message"]["content"].startswith(text)


def test_a_whole_reply_counts_what_was_said(app: RunningApp, client: httpx.Client) -> None:
    body = {"prompt": "hi", **LONG, "n": 2, "request_id": "y", "logprobs": 0}
    with asked(app, "/v1/completions", body) as (found,):
        wait_until(lambda: sum(item["next_token"]["n_decoded"] for item in slots(client)) > 6)
        assert cancel(client, "y")
        reply = found.result().json()
    assert [choice["finish_reason"] for choice in reply["choices"]] == ["cancel", "cancel"]
    counts = [len(choice["logprobs"]["tokens"]) for choice in reply["choices"]]
    assert sum(counts) == reply["usage"]["completion_tokens"] > 6


def slots(client: httpx.Client) -> Any:
    return client.get("/slots").json()


@pytest.fixture(scope="module")
def narrow(tiny_model: Path, store: Path) -> Iterator[RunningApp]:
    """One request runs, the others wait."""
    config = tiny_config(tiny_model, prefill_chunk_len=512, parallel=1)
    with running_app(config, store) as app:
        yield app


def test_a_waiting_request_never_runs(narrow: RunningApp) -> None:
    first = {"prompt": "one", **LONG, "request_id": "first"}
    second = {"prompt": "two", **LONG, "request_id": "second"}
    with narrow.client() as client, asked(narrow, "/v1/completions", first) as (running,):
        wait_until(lambda: num_running(narrow) == 1)
        with asked(narrow, "/v1/completions", second) as (waiting,):
            wait_until(lambda: narrow.model.engine.stats().num_waiting == 1)
            assert cancel(client, "second")
            reply = waiting.result().json()
        assert reply["choices"][0] == {
            "index": 0,
            "text": "",
            "logprobs": None,
            "finish_reason": "cancel",
        }
        assert reply["usage"]["completion_tokens"] == 0
        assert not running.done()
        assert cancel(client, "first")
        assert running.result().json()["choices"][0]["finish_reason"] == "cancel"
    narrow.wait_until_idle()


def test_reading_a_prompt_stops(app: RunningApp, client: httpx.Client) -> None:
    read = threading.Event()
    body = {"prompt": "word " * 600, "stream": True, "return_progress": True, "request_id": "z"}

    def run() -> list[str]:
        with app.client() as own, own.stream("POST", "/v1/completions", json=body) as reply:
            lines = []
            for line in reply.iter_lines():
                lines.append(line)
                read.set()
            return lines

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(run)
        assert read.wait(60)
        # It may have been read to its end by now; then it is cut while it answers.
        was_cancelled = cancel(client, "z")
        *chunks, end = events_of("\n".join(found.result()) + "\n")
    assert end == "[DONE]"
    assert (json.loads(chunks[-1])["choices"][0]["finish_reason"] == "cancel") == was_cancelled
    app.wait_until_idle()


def test_a_storm_of_cancelled_requests_leaves_nothing_behind(narrow: RunningApp) -> None:
    paths = {CHAT: "messages", "/api/chat": "messages", "/completion": "prompt"}

    def ask(index: int) -> int:
        path, field = list(paths.items())[index % 3]
        text: Any = [{"role": "user", "content": "x" * index}] if field == "messages" else "x"
        body = {field: text, **LONG, "stream": index % 2 == 0, "request_id": f"n{index % 5}"}
        return post(narrow, path, body).status_code

    with narrow.client() as client, ThreadPoolExecutor(16) as pool:
        found = [pool.submit(ask, index) for index in range(16)]
        names = [f"n{number}" for number in range(5)]
        wait_until(
            lambda: (
                not any(cancel(client, name) for name in names)
                and all(item.done() for item in found)
            )
        )
        assert [item.result() for item in found] == [200] * 16
    narrow.wait_until_idle()
    assert narrow.service.places(narrow.model)[0].request is None
