"""``flm version`` and ``flm --version``."""

from typing import Annotated

import typer

from flm.cli.console import say, say_json
from flm.cli.options import json_flag
from flm.version import __version__


def version(as_json: Annotated[bool, json_flag()] = False) -> None:
    """Print the version."""
    if as_json:
        say_json({"version": __version__})
    else:
        say(f"FLM v{__version__}")


def print_version(wanted: bool) -> None:
    """The callback of ``--version``: print it and end."""
    if wanted:
        version()
        raise typer.Exit
