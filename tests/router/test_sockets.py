"""Over real connections: what a server does to its socket leaves the pool of a router whole."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from flm.router import (
    Config,
    LMRouter,
    Message,
    Request,
    RouterConfig,
    RouterError,
    Timeouts,
)
from tests.support.providers import chat_events, lines

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENTS = lines(*chat_events("one ", "END two"))
ASKED = Request(model="flm:m", messages=[Message.user("hi")])
MANY = Config(stop=["END", *(f"<{number}>" for number in range(16))])


def chunk(content: bytes) -> bytes:
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that reads a request and leaves the rest to ``answer``. Its connections stay open
    until the end unless ``answer`` closes them."""
    opened: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                opened.append(connection)
                try:
                    connection.recv(65536)
                    answer(connection)
                except OSError:
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    for connection in opened:
        connection.close()


def router_at(url: str) -> LMRouter:
    times = Timeouts(connect=20, read=20, write=20, pool=20)
    config = RouterConfig(base_urls={"flm": url}, env={}, max_connections=1, timeouts=times)
    return LMRouter(config)


def num_open(router: LMRouter) -> int:
    pool = router._connected()._transport._pool  # type: ignore[attr-defined]
    return len(pool.connections)


def held_open(connection: socket.socket) -> None:
    connection.sendall(HEAD + chunk(EVENTS))


def cut_off(connection: socket.socket) -> None:
    connection.sendall(HEAD + chunk(EVENTS)[:60])
    connection.close()


def test_the_end_is_the_end_though_the_server_holds_on() -> None:
    with server(held_open) as url, router_at(url) as router:
        for _ in range(3):
            assert router.stream(ASKED).response.text == "one END two"
            assert num_open(router) == 0


def test_a_cut_answer_closes_its_connection() -> None:
    request = Request(model="flm:m", messages=ASKED.messages, config=MANY)
    with server(held_open) as url, router_at(url) as router:
        for _ in range(3):
            assert router.complete(request).text == "one "
            assert num_open(router) == 0


@pytest.mark.parametrize("stream", [True, False])
def test_a_server_that_goes_away(stream: bool) -> None:
    with server(cut_off) as url, router_at(url) as router:
        for _ in range(3):
            with pytest.raises(RouterError):
                _ = router.stream(ASKED).response if stream else router.complete(ASKED)
            assert num_open(router) == 0


def test_a_stream_that_nobody_reads_on_is_let_go() -> None:
    with server(held_open) as url, router_at(url) as router:
        for _ in range(3):
            for event in router.stream(ASKED):
                assert event.type == "start"
                break
            assert num_open(router) == 0
