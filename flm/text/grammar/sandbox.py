"""A process that tries every grammar first.

A hostile pattern can keep the grammar engine busy for minutes, fill the memory, or overflow the
stack and so end the process. That happens to a child with limits, and the request gets a 400.
"""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

_PROGRAM = Path(__file__).parent / "trial.py"
TIMEOUT_S = 20.0
"""On the wall, for a machine with other work; the child counts its processor time itself."""


class GrammarError(ValueError):
    """The grammar is wrong, or costs more than is allowed."""


class Sandbox:
    """One child process, started when first needed and again after it had to be ended."""

    def __init__(self, *, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def check(self, grammar: str, *, size: int, special: list[tuple[int, str]]) -> None:
        """Try a grammar over a vocabulary of ``size`` tokens with these control tokens.

        Raises:
            GrammarError: it does not compile, or not within the limits of time and memory.
        """
        request = json.dumps({"grammar": grammar, "size": size, "special": special})
        with self._lock:
            if self._process is None:
                self._process = self._started()
            answer = _asked(self._process, request, self._timeout_s)
            if answer is None:
                self._end()
        if answer is None:
            raise GrammarError(
                "it takes too much time or memory to compile; make it smaller, or its repetitions "
                "fewer"
            )
        if answer["error"] is not None:
            raise GrammarError(answer["error"])

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._end()

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-P", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        ready = json.dumps({"grammar": '{"grammars": []}', "size": 0, "special": []})
        if _asked(process, ready, self._timeout_s) is None:
            _stop(process)
            raise GrammarError("the process that tries grammars does not start")
        return process

    def _end(self) -> None:
        if self._process is not None:
            _stop(self._process)
            self._process = None


def _asked(process: subprocess.Popen[str], request: str, timeout_s: float) -> dict[str, Any] | None:
    """The answer; None when there was none in time, which ends the process."""
    assert process.stdin is not None
    assert process.stdout is not None
    watchdog = threading.Timer(timeout_s, process.kill)
    watchdog.start()
    try:
        process.stdin.write(request + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except OSError:
        line = ""
    finally:
        watchdog.cancel()
    answer: dict[str, Any] | None = json.loads(line) if line.endswith("\n") else None
    return answer


def _stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        try:
            if pipe is not None:
                pipe.close()
        except OSError:  # what was still to be written has no reader
            continue
