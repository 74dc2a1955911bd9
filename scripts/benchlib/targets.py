"""What can be measured: servers that we start, servers that run already, transformers itself."""

import json
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from benchlib.memory import listener_pid
from flm.bench.client import Heard, OpenAIClient
from flm.bench.errors import BenchError
from flm.bench.process import Child, started
from flm.bench.reply import Message, Reply
from flm.bench.servers import served
from flm.config import OPTIONS_BY_NAME

HERE = Path(__file__).parent
FACT = "system_info"


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

    @property
    def facts(self) -> Sequence[str]:
        """What it says of its own build."""

    def generate(
        self, messages: Sequence[Message], max_tokens: int, heard: Heard | None = None
    ) -> Reply:
        """Answer once; ``heard`` is called at every piece where replies come in pieces."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to get a target: entering ``start()`` waits until it is ready, leaving ends it.

    ``has_startup`` is False where a start-up time would say nothing. ``command`` is what is run,
    None where nothing is. ``weight_bytes`` is the size of the weights as stored, None where we do
    not know it. With ``only``, it takes part in these scenarios alone. ``imports`` is the module
    that a program on the client's side of it imports.
    """

    name: str
    start: Callable[[], AbstractContextManager[Target]]
    has_startup: bool
    command: str | None = None
    weight_bytes: int | None = None
    only: frozenset[str] | None = None
    imports: str | None = None


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """A server behind an OpenAI-compatible base URL."""

    name: str
    client: OpenAIClient
    pid: int | None
    startup_s: float | None
    facts: Sequence[str] = ()
    takes_many: bool = True

    @property
    def model(self) -> str:
        """The model that requests name."""
        return self.client.model

    def generate(
        self, messages: Sequence[Message], max_tokens: int, heard: Heard | None = None
    ) -> Reply:
        """Answer once."""
        return self.client.generate(messages, max_tokens, heard)


@dataclass(frozen=True, slots=True)
class WorkerTarget:
    """A child that answers JSON lines on stdin with JSON lines on stdout, one at a time."""

    name: str
    model: str
    child: Child
    startup_s: float | None
    facts: Sequence[str] = ()
    takes_many: bool = False

    @property
    def pid(self) -> int | None:
        """The child's process id."""
        return self.child.pid

    def generate(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        heard: Heard | None = None,  # noqa: ARG002 - its replies come whole
    ) -> Reply:
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


def flm_recipe(model: str, threads: int, kv_tokens: int, serve_args: Sequence[str]) -> Recipe:
    """Our own server, as this environment has it installed.

    Speculation has a column of its own (``speculating``); here it is off unless asked for.
    """
    program = str(Path(sys.executable).with_name("flm"))
    command = [program, "serve", model, "--threads", str(threads), *serve_args]
    if "--kv-tokens" not in serve_args:
        command += ["--kv-tokens", str(kv_tokens)]
    if "speculate" in OPTIONS_BY_NAME and "--speculate" not in serve_args:
        command += ["--speculate", "off"]
    return replace(http_recipe("flm", command), imports="flm.router")


def speculating(recipe: Recipe) -> Recipe | None:
    """The same server guessing ahead, for the scenario that repeats a passage. None where it
    cannot, or where the caller has chosen already."""
    if recipe.command is None or "--speculate off" not in recipe.command:
        return None
    command = shlex.split(recipe.command.replace("--speculate off", "--speculate ngram"))
    only = frozenset({"repeat"})
    return replace(http_recipe("flm, ngram", command), has_startup=False, only=only, imports=None)


def llama_recipe(
    gguf: Path, threads: int, num_slots: int, kv_tokens: int, program: str | None
) -> Recipe:
    """llama.cpp's server on the same file: ``program``, else the one on the PATH or beside this
    Python, else the one in the xllamacpp package. One cache of ``kv_tokens`` serves all slots."""
    beside = Path(sys.executable).parent
    found = shutil.which(program or "llama-server") or shutil.which("llama-server", path=beside)
    if program is not None and found is None:
        raise BenchError(f"--llama-server {program}: there is no such program.")
    runs = [sys.executable, str(HERE / "llama_server.py")] if found is None else [found]
    arguments = ["--model", str(gguf), "--host", "127.0.0.1", "--threads", str(threads)]
    arguments += ["--threads-batch", str(threads), "--parallel", str(num_slots)]
    arguments += ["--ctx-size", str(kv_tokens), "--kv-unified", "--cont-batching"]
    arguments += ["--cache-prompt", "--flash-attn", "auto"]
    return http_recipe("llama-server", [*runs, *arguments])


def http_recipe(name: str, command: Sequence[str]) -> Recipe:
    """A server that is started by ``command`` and ``--port PORT``."""

    @contextmanager
    def start() -> Iterator[Target]:
        with served(name, lambda port: [*command, "--port", str(port)], {}) as server:
            lines = server.child.log_tail(100_000).splitlines()
            facts = [line.strip() for line in lines if FACT in line]
            yield HttpTarget(name, server.client, server.child.pid, server.startup_s, facts)

    return Recipe(name, start, has_startup=True, command=shlex.join(command))


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

    return Recipe("transformers", start, has_startup=False, command=shlex.join(command))
