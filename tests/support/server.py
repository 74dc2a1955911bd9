"""A real ``flm serve`` in a process of its own, for tests that stand where a user stands."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

SERVE: tuple[str, ...] = (
    sys.executable,
    "-c",
    "from flm.cli.main import main; main()",
    "serve",
)
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that answered ``/health`` with 200. ``base_url`` has no trailing slash."""

    base_url: str
    process: subprocess.Popen[bytes]
    log_path: Path

    @property
    def pid(self) -> int:
        """The server's own process."""
        return self.process.pid

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.base_url.rpartition(":")[2])

    def log(self) -> str:
        """Everything it has written so far, stdout and stderr together."""
        return self.log_path.read_text("utf-8", errors="replace")

    def stop(self, signum: int = signal.SIGTERM, *, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Signal it, wait for its end, and return the exit status.

        Raises:
            AssertionError: it did not end in time; it is killed then.
        """
        if self.process.poll() is None:
            self.process.send_signal(signum)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(
                f"the server did not end within {timeout_s} s of signal {signum}:\n{self.log()}"
            ) from None


def free_port() -> int:
    """A port on 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running_server(
    args: Sequence[str],
    env: Mapping[str, str] | None = None,
    *,
    command: Sequence[str] = SERVE,
    timeout_s: float = START_TIMEOUT_S,
) -> Iterator[RunningServer]:
    """Start ``flm serve ARGS`` on a free loopback port and end it (only it) afterwards.

    ``args`` may not name a port. ``env`` is added to this process's environment.

    Raises:
        AssertionError: it ended early or was not ready within ``timeout_s``; with its log.
    """
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="flm-server-") as folder:
        log_path = Path(folder) / "log"
        with log_path.open("wb") as log_file:
            process = subprocess.Popen(
                [*command, *args, "--host", "127.0.0.1", "--port", str(port)],
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(env if env is not None else {})},
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
            )
        server = RunningServer(f"http://127.0.0.1:{port}", process, log_path)
        try:
            _wait_until_healthy(server, timeout_s)
            yield server
        finally:
            server.stop()


def _wait_until_healthy(server: RunningServer, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    with httpx.Client(trust_env=False, timeout=5.0) as client:
        while time.monotonic() < deadline:
            status = server.process.poll()
            if status is not None:
                raise AssertionError(f"the server ended early, status {status}:\n{server.log()}")
            try:
                if client.get(f"{server.base_url}/health").status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            time.sleep(POLL_S)
    raise AssertionError(f"the server was not ready within {timeout_s} s:\n{server.log()}")
