"""Child processes: started with a clock, ended with care, their log kept for the error."""

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flm.log import logger

STOP_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Child:
    """A running child. ``log_path`` receives its stderr (and its stdout, unless piped)."""

    process: subprocess.Popen[str]
    log_path: Path

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def log_tail(self, num_chars: int = 2000) -> str:
        """The end of what it wrote."""
        return self.log_path.read_text("utf-8", errors="replace")[-num_chars:]


@contextmanager
def started(
    command: Sequence[str], env: Mapping[str, str], *, piped: bool = False
) -> Iterator[Child]:
    """Run ``command``; ``piped`` opens its stdin and stdout to us. Ended on leaving."""
    with tempfile.NamedTemporaryFile("w", prefix="flm-bench-") as log_file:
        process = subprocess.Popen(
            command,
            env={**os.environ, **env},
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else log_file,
            stderr=log_file,
            text=True,
        )
        try:
            yield Child(process, Path(log_file.name))
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        logger.warning("Process %d did not end; it is killed.", process.pid)
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
