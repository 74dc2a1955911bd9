"""What clients see while the engine is slow, and after it has died."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import tiny_config
from tests.e2e.test_crowd import FOREVER, leaver
from tests.support.app import RunningApp, running_app, wait_until
from tests.support.replies import CHAT, COMPLETIONS, whole

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


@pytest.fixture
def mortal(tiny_model: Path, store: Path) -> Iterator[RunningApp]:
    """A server of one test's own, with frequent keep-alive comments."""
    with running_app(tiny_config(tiny_model, keepalive_s=0.1), store) as app:
        yield app


def runner_of(app: RunningApp) -> Any:
    return app.model.engine._engine._runner  # type: ignore[attr-defined]


def break_runner(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the device is gone: /secret/path")

    monkeypatch.setattr(runner_of(app), "forward", fail)


def test_a_dead_engine_fails_everybody_and_says_so(
    mortal: RunningApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = mortal.model.engine
    with (
        ThreadPoolExecutor() as pool,
        mortal.client() as one,
        mortal.client() as two,
        one.stream("POST", COMPLETIONS, json={**leaver(1, FOREVER), "stream": True}) as stream,
    ):
        lines = stream.iter_lines()
        next(lines)
        whole_reply = pool.submit(two.post, CHAT, json=leaver(2, FOREVER))
        wait_until(lambda: engine.stats().num_running == 2)
        break_runner(mortal, monkeypatch)
        data = [
            json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data")
        ]
        error = data[-1]["error"]
        assert "secret" not in error.pop("message")
        assert error == {"type": "server_error", "code": "engine_dead", "param": None}
        assert_dead(whole_reply.result())
        assert_dead(two.get("/health"))
        for path in (CHAT, COMPLETIONS):
            for streamed in (False, True):
                body = {"messages": HELLO} if path == CHAT else {"prompt": "hi"}
                assert_dead(two.post(path, json={**body, "stream": streamed, "top_k": 3}))
        assert two.get("/v1/version").status_code == 200
        entries = two.get("/v1/settings").json()["settings"]
        assert next(entry for entry in entries if entry["field"] == "top_k")["value"] == 100


def assert_dead(reply: httpx.Response) -> None:
    assert reply.status_code == 503
    assert int(reply.headers["retry-after"]) > 0
    error = reply.json()["error"]
    assert "secret" not in error.pop("message")
    assert error == {"type": "server_error", "code": "engine_dead", "param": None}


def test_a_reload_brings_it_back(mortal: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    with mortal.client() as client:
        told = whole(client, messages=HELLO, seed=1, max_tokens=4)
        break_runner(mortal, monkeypatch)
        assert_dead(client.post(CHAT, json={"messages": HELLO}))
        mortal.run(mortal.service.reload())
        assert client.get("/health").status_code == 200
        assert whole(client, messages=HELLO, seed=1, max_tokens=4).choices == told.choices
    mortal.wait_until_idle()


def test_logits_that_are_no_numbers_fail_only_their_request(
    mortal: RunningApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = runner_of(mortal)
    forward = runner.forward

    def spoil(plan: Any) -> Any:
        logits = forward(plan)
        return logits * float("nan") if plan.chunks else logits

    with mortal.client() as client:
        told = whole(client, messages=HELLO, seed=1, max_tokens=4)
        with monkeypatch.context() as patch:
            patch.setattr(runner, "forward", spoil)
            reply = client.post(CHAT, json={"messages": HELLO})
            assert reply.status_code == 500
            assert reply.json()["error"]["code"] == "internal"
            with client.stream("POST", CHAT, json={"messages": HELLO, "stream": True}) as stream:
                assert stream.status_code == 200
                frames = [line for line in stream.iter_lines() if line.startswith("data: ")]
            assert json.loads(frames[-1].removeprefix("data: "))["error"]["code"] == "internal"
        assert client.get("/health").status_code == 200
        assert whole(client, messages=HELLO, seed=1, max_tokens=4).choices == told.choices
    mortal.wait_until_idle()


def test_a_long_silence_is_filled_with_comments(
    mortal: RunningApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = runner_of(mortal)
    forward = runner.forward
    may_go_on = threading.Event()

    def wait(plan: Any) -> Any:
        assert may_go_on.wait(60)
        return forward(plan)

    with mortal.client() as client:
        told = whole(client, messages=HELLO, seed=1, max_tokens=4)
        monkeypatch.setattr(runner, "forward", wait)
        body = {"messages": HELLO, "seed": 1, "max_tokens": 4, "stream": True}
        with client.stream("POST", CHAT, json=body) as reply:
            # The headers come at once, before a token is known.
            assert reply.status_code == 200
            assert reply.headers["content-type"].startswith("text/event-stream")
            lines = reply.iter_lines()
            assert [next(lines) for _ in range(6)] == [": keep-alive", ""] * 3
            may_go_on.set()
            data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        assert data.pop() == "[DONE]"
        deltas = [json.loads(item)["choices"][0]["delta"] for item in data]
        assert "".join(delta.get("content", "") for delta in deltas) == told.text


def test_a_client_that_leaves_during_a_silence_is_noticed(
    mortal: RunningApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = runner_of(mortal)
    forward = runner.forward

    def slowly(plan: Any) -> Any:
        time.sleep(0.05)
        return forward(plan)

    monkeypatch.setattr(runner, "forward", slowly)
    prompt = [3 + index % 500 for index in range(2000)]
    with mortal.client() as client:
        body = {"prompt": prompt, "stream": True, "max_tokens": 40, "ignore_eos": True}
        with client.stream("POST", COMPLETIONS, json=body):
            wait_until(lambda: mortal.model.engine.stats().num_running == 1)
    mortal.wait_until_idle()
