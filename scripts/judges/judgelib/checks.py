"""What the judges share: a server to judge, checks of one line each, an exit status.

Only the standard library is used here, because every judge runs in an environment of its own.
"""

import argparse
import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MODEL = "smollm2:135m"
API_KEY = "flm"
CONTEXT_LEN = 2048
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 30.0
REQUEST_TIMEOUT_S = 600.0

_ROOT = Path(__file__).resolve().parents[3]
_DOCUMENTED_HOST = "http://127.0.0.1:52625"
_BANNER = re.compile(r"OpenAI base URL: (http\S+)")
# Loopback is reached directly, whatever proxy this machine has.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class JudgeError(Exception):
    """There is nothing to judge; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers. ``url`` ends in ``/v1``."""

    url: str
    model: str = MODEL
    api_key: str = API_KEY

    def restore_settings(self) -> None:
        """Undo what earlier requests left behind: settings stick."""
        self._ask("DELETE", "/settings", None)

    def be_greedy(self) -> None:
        """Make temperature 0 stick, for clients that send none, so that they see one text."""
        hello = [{"role": "user", "content": "Hello"}]
        body = {"model": self.model, "messages": hello, "temperature": 0, "max_tokens": 1}
        self._ask("POST", "/chat/completions", body)

    def _ask(self, method: str, path: str, body: object) -> None:
        data = None if body is None else json.dumps(body).encode()
        ask = urllib.request.Request(self.url + path, data, method=method)
        with _DIRECT.open(ask, timeout=REQUEST_TIMEOUT_S) as answer:
            answer.read()


Check = Callable[[Server], None]
"""One thing that a client does. Its docstring is the line that is printed; any exception fails
it."""


def main(*checks: Check) -> int:
    """Run the checks against the URL of the command line, or against a server of our own.

    Returns:
        The exit status: 0 when every check passed, 1 when one failed, 2 when there was nothing to
        judge, 130 when it was interrupted.
    """
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("url", nargs="?", help="base URL with /v1; absent: a server is started")
    url = parser.parse_args().url
    try:
        if url is not None:
            return judge(Server(url.rstrip("/")), checks)
        with serving() as server:
            return judge(server, checks)
    except JudgeError as error:
        print(f"judge: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("judge: interrupted", file=sys.stderr)
        return 130


def judge(server: Server, checks: Sequence[Check]) -> int:
    """Run every check, each from restored settings; 1 when one failed."""
    failed = 0
    for check in checks:
        line = (check.__doc__ or check.__name__).strip().splitlines()[0].rstrip(".")
        try:
            server.restore_settings()
            check(server)
        except Exception as error:  # noqa: BLE001 - a client may fail in any way
            failed += 1
            print(f"FAILED  {line}: {type(error).__name__}: {str(error)[:600]}", flush=True)
            traceback.print_exc()
        else:
            print(f"ok      {line}", flush=True)
    return 1 if failed else 0


# --- what the documentation shows --------------------------------------------------------------


def documented(heading: str) -> Check:
    """The example under a heading of docs/clients.md as a check.

    Raises:
        JudgeError: there is none.
    """
    page = (_ROOT / "docs" / "clients.md").read_text("utf-8")
    _, found, rest = page.partition(f"\n## {heading}\n")
    section = rest.partition("\n## ")[0]
    blocks = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", section, re.DOTALL)
    if not found or blocks is None:
        raise JudgeError(f"docs/clients.md has no example under {heading}.")
    code, printed = blocks.groups()

    def check(server: Server) -> None:
        if _DOCUMENTED_HOST not in code:
            raise AssertionError(f"the example does not name {_DOCUMENTED_HOST}")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(
                code.replace(_DOCUMENTED_HOST, server.url.removesuffix("/v1")),
                {"__name__": "example"},
            )
        if out.getvalue() != printed:
            raise AssertionError(f"the example printed {out.getvalue()!r}, not {printed!r}")

    check.__doc__ = f"The example in docs/clients.md prints what is shown: {heading}"
    return check


# --- a server of our own -----------------------------------------------------------------------


@contextmanager
def serving() -> Iterator[Server]:
    """A real ``flm serve`` on a free port of 127.0.0.1, ended on leaving.

    Raises:
        JudgeError: there is no program, or it did not come up; with its log.
    """
    with tempfile.NamedTemporaryFile("w", prefix="flm-judged-") as log_file:
        log_path = Path(log_file.name)
        # Every client here names its model, and one suite wants a request without one refused.
        flags = ["--port", "0", "--ctx-len", str(CONTEXT_LEN), "--require-model"]
        arguments = ["serve", MODEL, *flags]
        # As on Ctrl-C, so that the server is ended too.
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        process = subprocess.Popen(
            [_program(), *arguments],
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
        )
        try:
            yield Server(_wait_until_ready(process, log_path))
        finally:
            _stop(process)
            signal.signal(signal.SIGTERM, before)


def _program() -> str:
    own = _ROOT / ".venv" / "bin" / "flm"
    found = str(own) if own.exists() else shutil.which("flm")
    if found is None:
        raise JudgeError("there is no flm to judge; run scripts/setup first, or give a URL.")
    return found


def _wait_until_ready(process: "subprocess.Popen[bytes]", log_path: Path) -> str:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        banner = _BANNER.search(log_path.read_text("utf-8", errors="replace"))
        if banner is not None and _is_healthy(banner[1]):
            return banner[1]
        time.sleep(0.1)
    raise JudgeError(f"the server did not come up:\n{log_path.read_text('utf-8')[-4000:]}")


def _is_healthy(url: str) -> bool:
    try:
        with _DIRECT.open(f"{url.removesuffix('/v1')}/health", timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
