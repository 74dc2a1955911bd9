"""The life of the process: loading, signals, grace, a taken port."""

import asyncio
import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from flm.cli.ports import listen
from tests.e2e.conftest import hot_folder
from tests.e2e.test_crowd import leaver
from tests.support.app import HANG_S, wait_until
from tests.support.replies import CHAT, COMPLETIONS, whole
from tests.support.server import SERVE, RunningServer, free_port, running_server

LONG = 6000


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose context keeps it busy for many seconds."""
    return hot_folder(tmp_path_factory.mktemp("process") / "tiny", max_context_len=8192)


@contextmanager
def serving(model: Path, *args: str) -> Iterator[tuple[RunningServer, httpx.Client]]:
    command = [str(model), "--dtype", "float32", "--threads", "1", *args]
    with (
        running_server(command, {"FLM_MODEL_PATH": str(model.parent / "none")}) as server,
        httpx.Client(base_url=server.base_url, timeout=HANG_S, trust_env=False) as client,
    ):
        yield server, client


@pytest.fixture(scope="module")
def calm(model: Path) -> Iterator[tuple[RunningServer, httpx.Client]]:
    """A server at which nothing takes long."""
    with serving(model, "--grace-s", "3600") as pair:
        yield pair


def test_running_requests_finish_within_the_grace_period(model: Path) -> None:
    with serving(model, "--grace-s", "60") as (server, client), ThreadPoolExecutor() as pool:
        told = whole(client, **leaver(1, 300))
        body = {**leaver(1, 300), "stream": True}
        with client.stream("POST", COMPLETIONS, json=body) as stream:
            lines = stream.iter_lines()
            next(lines)
            waiting = pool.submit(httpx.post, server.base_url + CHAT, json=leaver(2, 300))
            time.sleep(0.2)
            server.process.send_signal(signal.SIGINT)
            data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        assert data.pop() == "[DONE]"
        text = "".join(json.loads(item)["choices"][0]["text"] for item in data)
        assert told.text.endswith(text)
        assert waiting.result().status_code == 200
        assert server.process.wait(HANG_S) == 0
        assert "Stopping" in server.log()
        assert "Traceback" not in server.log()


def test_after_the_grace_period_clients_are_told(model: Path) -> None:
    with serving(model, "--grace-s", "0.3") as (server, client), ThreadPoolExecutor() as pool:
        body = {**leaver(1, LONG), "stream": True}
        with client.stream("POST", COMPLETIONS, json=body) as stream:
            lines = stream.iter_lines()
            next(lines)
            waiting = pool.submit(
                httpx.post, server.base_url + CHAT, json=leaver(2, LONG), timeout=HANG_S
            )
            time.sleep(0.2)
            server.process.send_signal(signal.SIGTERM)
            data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        error = json.loads(data[-1])["error"]
        assert error.pop("message")
        assert error == {"type": "server_error", "code": "shutting_down", "param": None}
        reply = waiting.result()
        assert reply.status_code == 503
        assert int(reply.headers["retry-after"]) > 0
        assert reply.json()["error"]["code"] == "shutting_down"
        assert server.process.wait(HANG_S) == 0
        assert "Traceback" not in server.log()


def test_a_second_signal_ends_the_grace_period(model: Path) -> None:
    with serving(model, "--grace-s", "3600") as (server, client):
        body = {**leaver(1, LONG), "stream": True}
        with client.stream("POST", COMPLETIONS, json=body) as stream:
            lines = stream.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGINT)
            for _ in range(20):
                next(lines)
            assert server.process.poll() is None
            server.process.send_signal(signal.SIGINT)
            data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        assert json.loads(data[-1])["error"]["code"] == "shutting_down"
        assert server.process.wait(HANG_S) == 0
        assert "Traceback" not in server.log()


def test_the_banner_names_the_url_and_the_log_is_clean(
    calm: tuple[RunningServer, httpx.Client],
) -> None:
    server, client = calm
    whole(client, prompt="hi", max_tokens=2, foo=1, temperature=-1)
    log = server.log()
    assert f"[FLM]  OpenAI base URL: {server.base_url}/v1" in log
    assert log.count("serves tiny") == 1
    assert "temperature -1.0 is ignored" in log
    assert "foo" not in log
    assert all(line.startswith("[FLM]  ") for line in log.splitlines())


@contextmanager
def loading(model: Path) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    """A server that has just been started."""
    port = free_port()
    process = subprocess.Popen(
        [*SERVE, str(model), "--host", "127.0.0.1", "--port", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=HANG_S
        ) as client:
            wait_until(lambda: process.poll() is not None or is_listening(client))
            yield process, client
    finally:
        process.terminate()
        process.communicate(timeout=HANG_S)


def is_listening(client: httpx.Client) -> bool:
    try:
        client.get("/v1/version")
    except httpx.TransportError:
        return False
    return True


@pytest.mark.real
def test_while_it_loads_it_says_so(smollm2_gguf: Path) -> None:
    with loading(smollm2_gguf) as (_, client):
        early = [client.get("/health"), client.post(COMPLETIONS, json={"prompt": "a"})]
        wait_until(lambda: client.get("/health").status_code == 200)
        assert client.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 1}).status_code == 200
    for reply in early:
        assert reply.status_code == 503
        assert int(reply.headers["retry-after"]) > 0
        assert reply.json()["error"]["code"] == "loading"


@pytest.mark.real
def test_a_signal_while_it_loads_ends_it(smollm2_gguf: Path) -> None:
    with loading(smollm2_gguf) as (process, client):
        assert client.get("/health").status_code == 503
        process.terminate()
        _, err = process.communicate(timeout=HANG_S)
        assert process.returncode == 0
        assert b"Traceback" not in err


def run_serve(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SERVE, *args], capture_output=True, text=True, timeout=HANG_S, check=False
    )


def test_a_taken_port_is_named_with_the_remedy(model: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        result = run_serve(str(model), "--port", str(port))
    assert result.returncode == 1
    assert str(port) in result.stderr
    assert "--port" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_option_that_does_not_fit_is_named(model: Path, tmp_path: Path) -> None:
    damaged = hot_folder(tmp_path / "bad")
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5000])
    starts = {
        (str(model), "--ctx-len", "8193"): ["--ctx-len", "8193", "8192"],
        (str(model), "--kv-tokens", "1024"): ["--kv-tokens", "1024", "8192"],
        (str(model), "--device", "cuda:99"): ["--device"],
        # An error while it loads ends the process too.
        (str(damaged),): ["model.safetensors"],
    }
    with ThreadPoolExecutor() as pool:
        ports = [str(free_port()) for _ in starts]
        results = pool.map(lambda args, port: run_serve(*args, "--port", port), starts, ports)
    for words, result in zip(starts.values(), results, strict=True):
        assert result.returncode == 1
        assert all(word in result.stderr for word in words), result.stderr
        assert "Traceback" not in result.stderr


def test_small_writes_are_sent_at_once() -> None:
    """asyncio turns Nagle's algorithm off only for sockets that name TCP as their protocol; with
    it on, each reply over a kept connection waits for the client's delayed acknowledgement."""

    async def no_delay() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peer = writer.get_extra_info("socket")
            found.set_result(peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()
            await writer.wait_closed()

        async with await asyncio.start_server(accept, sock=listen("127.0.0.1", 0)) as server:
            port = server.sockets[0].getsockname()[1]
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            is_off = await found
            writer.close()
            await writer.wait_closed()
            return is_off

    assert asyncio.run(no_delay()) != 0


def exchange(port: int, raw: bytes) -> bytes:
    """Send bytes; everything that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as wire:
        wire.sendall(raw)
        return b"".join(iter(lambda: wire.recv(65536), b""))


HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
MALFORMED = {
    "a bad chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a negative length": HEAD + b"Content-Length: -5\r\n\r\n",
    "no HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}


def test_what_is_not_http_gets_the_envelope(calm: tuple[RunningServer, httpx.Client]) -> None:
    server, client = calm
    for name, raw in MALFORMED.items():
        head, _, body = exchange(server.port, raw).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400"), name
        assert json.loads(body)["error"]["type"] == "invalid_request_error", name
    assert client.get("/health").status_code == 200
    assert all(line.startswith("[FLM]  ") for line in server.log().splitlines())


def test_a_server_without_requests_ends_at_once(calm: tuple[RunningServer, httpx.Client]) -> None:
    """The last test of the calm server. Its idle connection is no request."""
    server, client = calm
    assert client.get("/health").status_code == 200
    assert server.stop(signal.SIGTERM, timeout_s=30) == 0
    assert "Traceback" not in server.log()


def test_a_client_that_never_ends_its_body_does_not_hold_up_the_end(model: Path) -> None:
    with (
        serving(model, "--grace-s", "60") as (server, _),
        socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S) as wire,
    ):
        wire.sendall(HEAD + b"Content-Length: 500\r\n\r\n{")
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        answer = b"".join(iter(lambda: wire.recv(65536), b""))
        assert b"shutting_down" in answer
        assert server.process.wait(HANG_S) == 0
        assert "Traceback" not in server.log()
