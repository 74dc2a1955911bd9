"""The servers that the tests share, each restored to its defaults before a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from flm.config import ServeConfig
from tests.support.app import RunningApp, running_app
from tests.support.server import RunningServer, running_server
from tests.support.tiny import ENDOFTEXT, IM_END, tiny_folder

SAMPLING: dict[str, float] = {
    "temperature": 4.0,
    "top_k": 100,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
}
"""The tiny model's own defaults. Random weights are sure of themselves; only heat makes texts that
differ."""
DEFAULTS: dict[str, float] = {
    **SAMPLING,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repeat_last_n": 64,
}


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of models with nothing in it."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose context is 2048 tokens."""
    return hot_folder(tmp_path_factory.mktemp("models") / "tiny")


def hot_folder(path: Path, *, seed: int = 0, max_context_len: int = 2048) -> Path:
    """A tiny model with ``SAMPLING`` as its defaults."""
    ends = {"bos_token_id": ENDOFTEXT, "eos_token_id": [IM_END, ENDOFTEXT]}
    return tiny_folder(
        path,
        seed=seed,
        max_context_len=max_context_len,
        generation_config={**ends, **SAMPLING},
    )


def tiny_config(model: Path, **options: object) -> ServeConfig:
    """The exact mode, in one thread: two would only wait for each other over so small a model."""
    return ServeConfig(model=str(model), dtype="float32", threads=1, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def tiny_app(tiny_model: Path, store: Path) -> Iterator[RunningApp]:
    with running_app(tiny_config(tiny_model, prefill_chunk_len=512), store) as app:
        yield app


@contextmanager
def in_order(app: RunningApp) -> Iterator[None]:
    """One test's turn with an app that others use: its settings are restored before, and its books
    must be in order afterwards."""
    app.model.store.reset()
    yield
    app.wait_until_idle()


@pytest.fixture
def app(tiny_app: RunningApp) -> Iterator[RunningApp]:
    """The tiny model."""
    with in_order(tiny_app):
        yield tiny_app


@pytest.fixture
def client(app: RunningApp) -> Iterator[httpx.Client]:
    with app.client() as client:
        yield client


@pytest.fixture(scope="session")
def real_app_of_session(smollm2_gguf: Path, store: Path) -> Iterator[RunningApp]:
    config = ServeConfig(model=str(smollm2_gguf), dtype="float32", ctx_len=2048)
    with running_app(config, store) as app:
        yield app


@pytest.fixture
def real_app(real_app_of_session: RunningApp) -> Iterator[RunningApp]:
    """As ``app``, with the real model."""
    with in_order(real_app_of_session):
        yield real_app_of_session


@pytest.fixture(scope="session")
def fast_app_of_session(smollm2_gguf: Path, store: Path) -> Iterator[RunningApp]:
    with running_app(ServeConfig(model=str(smollm2_gguf), ctx_len=2048), store) as app:
        yield app


@pytest.fixture
def fast_app(fast_app_of_session: RunningApp) -> Iterator[RunningApp]:
    """As ``real_app`` in the mode of every day: a token takes half as long as in the exact one."""
    with in_order(fast_app_of_session):
        yield fast_app_of_session


@pytest.fixture(scope="session")
def real_server(models_dir: Path) -> Iterator[RunningServer]:
    """``flm serve smollm2:135m`` as a process, in the exact mode."""
    args = ["smollm2:135m", "--dtype", "float32", "--ctx-len", "2048", "--prefill-chunk-len", "512"]
    with running_server(args, {"FLM_MODEL_PATH": str(models_dir)}) as server:
        yield server


@pytest.fixture
def real_client(real_server: RunningServer) -> Iterator[httpx.Client]:
    """A client of the process, with restored settings."""
    with httpx.Client(base_url=real_server.base_url, timeout=120, trust_env=False) as client:
        assert client.delete("/v1/settings").status_code == 200
        yield client
