"""Makes ``.venv`` beside the checkout and installs the project into it, with pinned versions.

Uses the standard library only: it runs before anything is installed. A stamp inside ``.venv`` is
written last, so an environment without one was interrupted and is made again.
"""

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from setuplib.install import make
from setuplib.state import Layout, SetupError, is_ready, read_wish, say

if sys.platform != "win32":  # Windows has no flock; there two runs at once are on their own
    import fcntl


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int | None]:
    """Hold the lock on ``path``; yields its file descriptor (None where there are no locks)."""
    if sys.platform == "win32":
        yield None
    else:
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("another setup is at work here; waiting for it")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield file.fileno()


def on_terminate(_signum: int, _frame: object) -> NoReturn:
    """End as on Ctrl-C, so that a running pip is ended too."""
    raise KeyboardInterrupt


def main() -> int:
    """Exit status 0 when the environment is ready."""
    signal.signal(signal.SIGTERM, on_terminate)
    layout = Layout(Path(__file__).resolve().parent.parent)
    try:
        wish = read_wish()
        if is_ready(layout, wish):
            return 0
        with locked(Path(__file__)) as lock_fd:
            if not is_ready(layout, wish):
                make(layout, wish, lock_fd)
    except (SetupError, OSError) as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted; run it again to start over")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
