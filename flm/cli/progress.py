"""How a download looks while it runs."""

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from flm.cli.console import note, size_text


class DownloadDisplay:
    """Shows a pull on stderr: a bar on a terminal, a line for each step elsewhere.

    A context manager that is also the ``Progress`` the store reports to.
    """

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        console = Console(file=sys.stderr, highlight=False)
        self._bars = Progress(*columns, console=console) if sys.stderr.isatty() else None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        """Start drawing."""
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop drawing, so that what follows is printed below the bar."""
        if self._bars is not None:
            self._finish()
            self._bars.stop()

    def begin(self, label: str, total: int | None) -> None:
        """A new step."""
        if self._bars is None:
            note(label if total is None else f"{label} ({size_text(total)})")
            return
        self._finish()
        self._task = self._bars.add_task(escape(label), total=total)

    def advance(self, num_bytes: int) -> None:
        """More bytes of the step."""
        if self._bars is not None and self._task is not None:
            self._bars.advance(self._task, num_bytes)

    def _finish(self) -> None:
        """Keep only the bar that moves: a model of many files would fill the screen."""
        if self._bars is not None and self._task is not None:
            self._bars.remove_task(self._task)
            self._task = None
