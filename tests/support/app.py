"""The whole server in this process: real configuration, service, engine and application behind a
socket, so that a test can speak HTTP and look into the engine too."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
import torch
import uvicorn
from fastapi import FastAPI

from flm.cli.ports import listen
from flm.config import MODEL_PATH_ENV, ServeConfig
from flm.models.manifest import new_manifest, write_manifest
from flm.models.sources.base import Receipt, Silent, StoredFile, digest_file
from flm.server.app import create_app
from flm.service import LoadedModel, Service
from flm.wiring import build_service

T = TypeVar("T")

HANG_S = 120.0
"""Nothing here takes nearly as long; a test that waits this long has found a hang."""


@dataclass(frozen=True, slots=True)
class RunningApp:
    """A server that answers at ``url``. ``service`` may be looked at from any thread."""

    url: str
    service: Service
    loop: asyncio.AbstractEventLoop

    @property
    def model(self) -> LoadedModel:
        """The loaded model."""
        model = self.service.current
        assert model is not None
        return model

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the server's own event loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(HANG_S)

    def client(self) -> httpx.Client:
        """A client of its own, with its own connections."""
        # To read the certificates, which plain HTTP does not need, costs more than most tests.
        return httpx.Client(base_url=self.url, timeout=HANG_S, trust_env=False, verify=False)

    def async_client(self) -> httpx.AsyncClient:
        """As ``client``; as many connections as there are requests."""
        limits = httpx.Limits(max_connections=None)
        return httpx.AsyncClient(
            base_url=self.url, timeout=HANG_S, trust_env=False, limits=limits, verify=False
        )

    def wait_until_idle(self) -> None:
        """Wait until nothing runs or waits, then hold the engine's books to account."""
        wait_until(lambda: self.model.engine.stats().num_running == 0)
        wait_until(lambda: self.model.engine.stats().num_waiting == 0)
        self.model.engine.check_integrity()
        assert self.model.engine.stats().active_kv_tokens == 0


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that must happen soon."""
    deadline = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


@contextmanager
def running_app(config: ServeConfig, store: Path) -> Iterator[RunningApp]:
    """Serve ``config`` on a free loopback port, with the models under ``store``."""
    num_threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MODEL_PATH_ENV, str(store))
        service = build_service(config)
    app = create_app(
        service,
        adaptations=config.adaptations,
        cors=config.cors,
        keepalive_s=config.keepalive_s,
        require_model=config.require_model,
        lifespan=_lifespan_of(service),
    )
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=5))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(
        target=loop.run_until_complete, args=(server.serve([listener]),), daemon=True
    )
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        assert server.started, "the server did not start"
        yield RunningApp(f"http://127.0.0.1:{listener.getsockname()[1]}", service, loop)
    finally:
        server.should_exit = True
        thread.join(HANG_S)
        listener.close()
        assert not thread.is_alive()
        loop.close()
        # Loading a model sets it for the whole process.
        torch.set_num_threads(num_threads)


def _lifespan_of(service: Service) -> Callable[[FastAPI], Any]:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.load()
        yield
        await service.close(grace_s=0)

    return lifespan


def install(store: Path, name: str, folder: Path) -> Path:
    """Put the model folder ``folder`` (an entry below ``store``) on record as the hub model
    ``name``, as a pull leaves it."""
    target = store / f"hub--{name.replace('/', '--')}"
    folder.rename(target)
    files = tuple(
        StoredFile(path.name, path.stat().st_size, digest_file(path, Silent()).sha256)
        for path in sorted(target.iterdir())
    )
    source = {"kind": "hub", "repo": name}
    write_manifest(target, new_manifest(name, source, Receipt("r1", files, None)))
    return target
