"""What commands print: lines, tables and JSON, clean when the output is piped."""

import json
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

PIPED_WIDTH = 1000
"""Columns when nobody looks: wide enough that no line is ever wrapped."""


def say(text: str) -> None:
    """One line of result on stdout."""
    typer.echo(text)


def note(text: str) -> None:
    """One line about what is going on, on stderr, so that it never mixes with results."""
    typer.echo(text, err=True)


def say_json(data: Any) -> None:
    """A JSON document on stdout."""
    typer.echo(json.dumps(data, indent=2))


def say_table(table: "Table") -> None:
    """A table on stdout: with colours on a terminal, plain lines in a pipe."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    console = Console(
        file=sys.stdout,
        width=None if is_terminal else PIPED_WIDTH,
        no_color=None if is_terminal else True,
        force_terminal=None if is_terminal else False,
        highlight=False,
    )
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip(), color=True if is_terminal else None)


def size_text(num_bytes: float) -> str:
    """A size as people write it: 98.4 MB, 1.83 GB."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.3g} {unit}"
    return f"{num_bytes:.0f} B"
