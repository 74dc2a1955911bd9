"""Over a real socket: clients that leave, bodies that are too large, silence that is filled."""

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from flm.server.context import ServerContext
from tests.server.conftest import HELLO, LiveServer, events_of, serving, wait_until
from tests.support.fake_service import FakeService, Script

CHAT = {"messages": HELLO}


@pytest.fixture
def holding() -> Iterator[LiveServer]:
    """A service that says one word and then waits."""
    service = FakeService(Script(hold_at=1))
    with serving(ServerContext(service, keepalive_s=0.05)) as server:
        server.service = service  # type: ignore[attr-defined]
        yield server


def service_of(server: LiveServer) -> FakeService:
    service = server.service  # type: ignore[attr-defined]
    assert isinstance(service, FakeService)
    return service


def send_raw(server: LiveServer, data: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    connection.sendall(data)
    return connection


def http_request(path: str, body: Any) -> bytes:
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_client_that_leaves_ends_its_generation(
    holding: LiveServer, path: str, stream: bool
) -> None:
    service = service_of(holding)
    connection = send_raw(holding, http_request(path, {**CHAT, "prompt": "x", "stream": stream}))
    wait_until(lambda: len(service.requests) == 1)
    if stream:
        # Prefill and everything after it is running; the headers are here.
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert service.num_leases == 1
    connection.close()
    wait_until(lambda: service.num_leases == 0)
    assert service.aborted == [service.requests[0].id]


def test_a_client_that_leaves_while_a_model_loads(holding: LiveServer) -> None:
    service = service_of(holding)
    entered: list[int] = []
    cancelled: list[int] = []

    async def never(*_args: object) -> None:
        entered.append(1)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(1)

    service.prepare = never  # type: ignore[assignment,method-assign]
    connection = send_raw(holding, http_request("/v1/chat/completions", CHAT))
    wait_until(lambda: bool(entered))
    connection.close()
    wait_until(lambda: bool(cancelled))
    wait_until(lambda: service.num_leases == 0)
    assert service.requests == []


def test_others_do_not_notice(holding: LiveServer) -> None:
    service = service_of(holding)
    service.script = Script()
    for _ in range(5):
        send_raw(holding, http_request("/v1/chat/completions", CHAT)[:-4]).close()
        send_raw(holding, b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n").close()
        send_raw(holding, b"\x16\x03\x01\x00rubbish\r\n\r\n").close()
    reply = httpx.post(f"{holding.url}/v1/chat/completions", json=CHAT)
    assert reply.json()["choices"][0]["message"]["content"] == "Hello, world!"


def test_comments_fill_the_silence(holding: LiveServer) -> None:
    service = service_of(holding)
    url = f"{holding.url}/v1/chat/completions"
    with httpx.stream("POST", url, json={**CHAT, "stream": True}, timeout=20) as reply:
        text = ""
        for piece in reply.iter_text():
            text += piece
            if text.count(": keep-alive\n\n") >= 3 and not service.hold.is_set():
                service.hold.set()
                # The event belongs to the server's loop; the next comment wakes that loop.
    said = "".join(
        json.loads(event)["choices"][0]["delta"].get("content", "")
        for event in events_of(text)[:-1]
    )
    assert said == "Hello, world!"
    assert text.endswith("data: [DONE]\n\n")


@pytest.fixture(scope="module")
def small() -> Iterator[LiveServer]:
    with serving(ServerContext(FakeService(), max_body_bytes=100_000)) as server:  # type: ignore[arg-type]
        yield server


def assert_too_large(status: int, body: bytes) -> None:
    assert status == 413
    error = json.loads(body)["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "too_large")


@pytest.mark.parametrize("size", [100_001, 5_000_000])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions/plan", "/nope"])
def test_a_declared_body_that_is_too_large(small: LiveServer, size: int, path: str) -> None:
    reply = httpx.post(f"{small.url}{path}", content=b"x" * size)
    assert_too_large(reply.status_code, reply.content)
    assert reply.headers["connection"] == "close"
    assert reply.headers["x-request-id"]


def test_a_chunked_body_that_is_too_large(small: LiveServer) -> None:
    reply = httpx.post(
        f"{small.url}/v1/chat/completions", content=(b"x" * 50_000 for _ in range(40))
    )
    assert_too_large(reply.status_code, reply.content)


def test_a_body_that_never_comes_is_refused_at_once() -> None:
    with serving(ServerContext(FakeService())) as server:  # type: ignore[arg-type]
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n"
        plain = send_raw(server, head % (257 * 1024 * 1024) + b"\r\n")
        assert plain.recv(100).startswith(b"HTTP/1.1 413")
        plain.close()
        waiting = send_raw(server, head % (2**60) + b"Expect: 100-continue\r\n\r\n")
        assert waiting.recv(100).startswith(b"HTTP/1.1 413")
        waiting.close()


def test_a_body_of_the_largest_size_is_read(small: LiveServer) -> None:
    raw = json.dumps(CHAT).encode()
    padded = raw + b" " * (100_000 - len(raw))
    assert httpx.post(f"{small.url}/v1/chat/completions", content=padded).status_code == 200
    reply = httpx.post(f"{small.url}/v1/chat/completions", content=padded + b" ")
    assert_too_large(reply.status_code, reply.content)


def test_curl_like_requests(small: LiveServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", small.port, timeout=20)
    for _ in range(2):
        connection.request("POST", "/v1/chat/completions", body=json.dumps(CHAT))
        reply = connection.getresponse()
        assert reply.status == 200
        reply.read()
    connection.close()


def test_a_client_that_takes_nothing_is_given_up() -> None:
    service = FakeService(Script(pieces=("x" * 100_000,) * 400))
    ctx = ServerContext(service, send_timeout_s=0.2)  # type: ignore[arg-type]
    with serving(ctx) as server:
        body = {**CHAT, "stream": True}
        connection = send_raw(server, http_request("/v1/chat/completions", body))
        wait_until(lambda: len(service.requests) == 1)
        wait_until(lambda: service.num_leases == 0)
        assert service.aborted == [service.requests[0].id]
        connection.close()
