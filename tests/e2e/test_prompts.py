"""Long prompts: the cut in chunks, and what ends the reading of one."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from flm.engine.runner import TorchRunner
from flm.engine.step import StepPlan
from tests.e2e.conftest import hot_folder, tiny_config
from tests.e2e.test_long_prompts import ids
from tests.support.app import HANG_S, RunningApp, install, running_app
from tests.support.replies import CHAT, COMPLETIONS, whole


@pytest.mark.parametrize(("asked", "chunk"), [(1, 512), (700, 1024)])
def test_the_chunk_length_is_rounded_and_holds_for_every_model(
    tmp_path: Path, asked: int, chunk: int
) -> None:
    for seed, name in enumerate(("test/one", "test/two")):
        install(tmp_path, name, hot_folder(tmp_path / "new", seed=seed))
    config = tiny_config(Path("test/one"), prefill_chunk_len=asked)
    with running_app(config, tmp_path) as app, app.client() as client:
        for name in ("test/one", "test/two", "test/one"):
            plan = client.post(f"{COMPLETIONS}/plan", json={"prompt": ids(2000), "model": name})
            full, rest = divmod(2000, chunk)
            assert plan.json()["prefill_chunks"] == [chunk] * full + [rest] * (rest > 0)
            # It is no limit: that is the context's.
            assert app.model.info.context_len == 2048
            reply = whole(client, prompt=ids(2000), model=name, max_tokens=1, seed=1)
            assert reply.usage is not None
            assert reply.usage["prompt_tokens"] == 2000


def test_without_the_option_a_chunk_is_4096_tokens(tmp_path: Path, store: Path) -> None:
    model = hot_folder(tmp_path / "long", max_context_len=65536)
    config = tiny_config(model, ctx_len=65536)
    with running_app(config, store) as app:
        assert app.model.chunk_lengths(32_000) == (4096,) * 7 + (3328,)


# --- leaving -----------------------------------------------------------------------------------


class Gate:
    """Holds the engine in its first step."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.left = threading.Event()
        self.num_steps = 0


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    forward = TorchRunner.forward

    def gated(self: TorchRunner, plan: StepPlan) -> torch.Tensor:
        gate.num_steps += 1
        gate.entered.set()
        assert gate.opened.wait(HANG_S)
        return forward(self, plan)

    monkeypatch.setattr(TorchRunner, "forward", gated)
    yield gate
    gate.opened.set()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_client_that_leaves_ends_the_reading_of_its_prompt(
    app: RunningApp,
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    path: str,
    stream: bool,
) -> None:
    abort = app.model.engine.abort

    def noted(*args: Any, **kwargs: Any) -> None:
        abort(*args, **kwargs)
        gate.left.set()

    monkeypatch.setattr(app.model.engine, "abort", noted)
    text = "word " * 380
    prompt: dict[str, Any] = {"prompt": text}
    if path == CHAT:
        prompt = {"messages": [{"role": "user", "content": text}]}
    body = {**prompt, "stream": stream, "cache_prompt": False, "top_k": 9}
    with app.client() as looking:
        chunks = looking.post(f"{path}/plan", json=body).json()["prefill_chunks"]
        assert len(chunks) > 1
    caplog.set_level(logging.INFO, logger="flm")
    leave_while_it_reads(app, path, body, gate)
    assert gate.left.wait(HANG_S)
    gate.opened.set()
    app.wait_until_idle()
    lines = [line for line in caplog.messages if line.startswith("Prefill chunk")]
    assert lines == [f"Prefill chunk 1/{len(chunks)} with {chunks[0]} tokens"]
    assert gate.num_steps == 1


def leave_while_it_reads(app: RunningApp, path: str, body: dict[str, Any], gate: Gate) -> None:
    def go() -> None:
        client = httpx.Client(base_url=app.url, timeout=0.5, trust_env=False)
        with client, pytest.raises(httpx.TimeoutException):
            client.post(path, json=body)

    thread = threading.Thread(target=go)
    thread.start()
    assert gate.entered.wait(HANG_S)
    thread.join(HANG_S)
