"""What can be measured: servers that we start, servers that run already, transformers itself."""

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx

from benchlib.client import OpenAIClient
from benchlib.errors import BenchError
from benchlib.memory import listener_pid
from benchlib.process import Child, started
from benchlib.reply import Message, Reply

START_TIMEOUT_S = 600.0
POLL_S = 0.01
HERE = Path(__file__).parent


class Target(Protocol):
    """Something that answers. ``startup_s`` and ``pid`` are None where we cannot know them."""

    @property
    def name(self) -> str:
        """What the table calls it."""

    @property
    def model(self) -> str:
        """The model it runs."""

    @property
    def pid(self) -> int | None:
        """The root of its process tree."""

    @property
    def startup_s(self) -> float | None:
        """Seconds from process start to ready."""

    @property
    def takes_many(self) -> bool:
        """True when it takes several requests at once."""

    def generate(self, messages: Sequence[Message], max_tokens: int) -> Reply:
        """Answer once."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to get a target: entering ``start()`` waits until it is ready, leaving ends it.

    ``has_startup`` is False where a start-up time would say nothing.
    """

    name: str
    start: Callable[[], AbstractContextManager[Target]]
    has_startup: bool


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """A server behind an OpenAI-compatible base URL."""

    name: str
    client: OpenAIClient
    pid: int | None
    startup_s: float | None
    takes_many: bool = True

    @property
    def model(self) -> str:
        """The model that requests name."""
        return self.client.model

    def generate(self, messages: Sequence[Message], max_tokens: int) -> Reply:
        """Answer once."""
        return self.client.generate(messages, max_tokens)


@dataclass(frozen=True, slots=True)
class WorkerTarget:
    """A child that answers JSON lines on stdin with JSON lines on stdout, one at a time."""

    name: str
    model: str
    child: Child
    startup_s: float | None
    takes_many: bool = False

    @property
    def pid(self) -> int | None:
        """The child's process id."""
        return self.child.pid

    def generate(self, messages: Sequence[Message], max_tokens: int) -> Reply:
        """Answer once."""
        request = {"messages": list(messages), "max_tokens": max_tokens}
        pipe = self.child.process.stdin
        assert pipe is not None
        try:
            pipe.write(json.dumps(request) + "\n")
            pipe.flush()
        except BrokenPipeError as error:
            raise BenchError(f"{self.name} ended:\n{self.child.log_tail()}") from error
        return Reply(**_read_line(self.name, self.child))


def _read_line(name: str, child: Child) -> dict[str, Any]:
    pipe = child.process.stdout
    assert pipe is not None
    line = pipe.readline()
    if not line:
        raise BenchError(f"{name} ended:\n{child.log_tail()}")
    answer: dict[str, Any] = json.loads(line)
    return answer


# --- recipes -----------------------------------------------------------------------------------


def url_recipe(url: str, model: str | None) -> Recipe:
    """A server that runs already."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BenchError(f"{url} is no base URL; it should look like http://127.0.0.1:8000")
    is_local = parts.hostname in ("127.0.0.1", "localhost", "::1")

    @contextmanager
    def start() -> Iterator[Target]:
        client = OpenAIClient(url, model)
        pid = listener_pid(parts.port) if is_local and parts.port is not None else None
        try:
            yield HttpTarget(parts.netloc, client, pid, startup_s=None)
        finally:
            client.close()

    return Recipe(parts.netloc, start, has_startup=False)


def flm_recipe(model: str, threads: int, serve_args: Sequence[str]) -> Recipe:
    """Our own server, as this environment has it installed."""
    program = str(Path(sys.executable).with_name("flm"))
    command = [program, "serve", model, "--threads", str(threads), *serve_args]
    return _http_recipe("flm", lambda port: [*command, "--port", str(port)], {})


def llama_recipe(gguf: Path, threads: int, num_slots: int) -> Recipe:
    """llama.cpp's server, from the xllamacpp package, on the same file."""
    script = str(HERE / "llama_server.py")
    command = [sys.executable, script, str(gguf), str(threads), str(num_slots)]
    return _http_recipe("llama-server", lambda port: [*command, str(port)], {})


def _http_recipe(name: str, command: Callable[[int], list[str]], env: Mapping[str, str]) -> Recipe:
    @contextmanager
    def start() -> Iterator[Target]:
        port = _free_port()
        url = f"http://127.0.0.1:{port}"
        began = time.perf_counter()
        with started(command(port), env) as child:
            _wait_for_health(name, url, child)
            took = time.perf_counter() - began
            client = OpenAIClient(url)
            try:
                yield HttpTarget(name, client, child.pid, took)
            finally:
                client.close()

    return Recipe(name, start, has_startup=True)


def transformers_recipe(gguf: Path, threads: int) -> Recipe:
    """transformers' own generate in float32, in a process of its own."""
    command = [sys.executable, str(HERE / "transformers_worker.py"), str(gguf)]
    env = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}

    @contextmanager
    def start() -> Iterator[Target]:
        began = time.perf_counter()
        with started(command, env, piped=True) as child:
            _read_line("transformers", child)
            took = time.perf_counter() - began
            yield WorkerTarget("transformers", gguf.name, child, took)

    return Recipe("transformers", start, has_startup=False)


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
