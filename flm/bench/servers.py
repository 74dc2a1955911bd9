"""Servers that a benchmark starts: on a free port, waited for with a clock, ended afterwards."""

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from flm.bench.client import OpenAIClient
from flm.bench.errors import BenchError
from flm.bench.process import Child, started

START_TIMEOUT_S = 600.0
POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Served:
    """A server that is ready, ``startup_s`` seconds after its process was started."""

    client: OpenAIClient
    child: Child
    startup_s: float


@contextmanager
def served(
    name: str, command: Callable[[int], Sequence[str]], env: Mapping[str, str]
) -> Iterator[Served]:
    """Run ``command`` of a port until ``/health`` is 200, and end it on leaving.

    Raises:
        BenchError: it ends or is not ready in time; its last words are in the message.
    """
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    began = time.perf_counter()
    with started(command(port), env) as child:
        _wait_for_health(name, url, child)
        took = time.perf_counter() - began
        client = OpenAIClient(url)
        try:
            yield Served(client, child, took)
        finally:
            client.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for_health(name: str, url: str, child: Child) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    with httpx.Client(trust_env=False, timeout=5.0) as http:
        while time.monotonic() < deadline:
            status = child.process.poll()
            if status is not None:
                raise BenchError(f"{name} ended with status {status}:\n{child.log_tail()}")
            try:
                if http.get(f"{url}/health").status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            time.sleep(POLL_S)
    raise BenchError(f"{name} was not ready in {START_TIMEOUT_S:.0f} s:\n{child.log_tail()}")
