"""A client over the app in this process, and the app behind a real socket."""

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import fastapi.routing
import httpx
import pytest
import uvicorn

from flm.cli.ports import listen
from flm.server.app import build_app
from flm.server.context import ServerContext
from tests.support.fake_service import FakeService

PATHS = ("/v1/chat/completions", "/v1/completions")
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def fields_are_made_once() -> Iterator[None]:
    """FastAPI makes a field for each reply of each path, anew for each app, though they are always
    the same: that took a third of the time of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        make = cache(fastapi.routing.create_model_field)
        patch.setattr(fastapi.routing, "create_model_field", make)
        yield


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
async def client(service: FakeService) -> AsyncIterator[httpx.AsyncClient]:
    async with in_process(ServerContext(service)) as client:
        yield client


def in_process(ctx: ServerContext, **kwargs: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(build_app(ctx, **kwargs))
    return httpx.AsyncClient(transport=transport, base_url="http://test")


class LiveServer:
    """uvicorn in a thread, on a port of its own."""

    def __init__(self, ctx: ServerContext) -> None:
        self._socket = listen("127.0.0.1", 0)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        config = uvicorn.Config(build_app(ctx), log_level="error", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True
        )

    def start(self) -> None:
        self._thread.start()
        wait_until(lambda: self._server.started)

    def stop(self) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(timeout=20)
        self._socket.close()
        assert not self._thread.is_alive()


@contextmanager
def serving(ctx: ServerContext) -> Iterator[LiveServer]:
    server = LiveServer(ctx)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def live(service: FakeService) -> Iterator[LiveServer]:
    with serving(ServerContext(service, keepalive_s=0.05)) as server:
        yield server


def wait_until(condition: Callable[[], bool], *, timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def events_of(text: str) -> list[str]:
    """The data of each event of a stream."""
    frames = [frame for frame in text.split("\n\n") if frame]
    return [frame.removeprefix("data: ") for frame in frames if not frame.startswith(":")]


def body_for(path: str, **fields: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"prompt": "hi"} if path == "/v1/completions" else {"messages": HELLO}
    return {**base, **fields}


async def post(client: httpx.AsyncClient, path: str = PATHS[0], **fields: Any) -> httpx.Response:
    return await client.post(path, json=body_for(path, **fields))


def records(reply: httpx.Response) -> dict[str, dict[str, Any]]:
    assert reply.status_code == 200, reply.text
    return {entry["field"]: entry for entry in reply.json().get("adaptations", [])}
