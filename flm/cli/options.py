"""Typer options made from the settings table, so that flag, variable and help have one home."""

from typing import Any

import typer

from flm.config import OPTIONS_BY_NAME


def option(name: str, *short: str, help: str | None = None) -> Any:  # noqa: A002 - typer's word
    """The option of one setting; ``short`` are further spellings, such as ``-p``. ``help`` stands
    in for the setting's own, which describes the server's."""
    setting = OPTIONS_BY_NAME[name]
    text = setting.help if help is None else help
    return typer.Option(setting.flag, *short, envvar=setting.env, help=text)


def switch(name: str) -> Any:
    """The option of a setting that is on or off: ``--cors`` and ``--no-cors``."""
    setting = OPTIONS_BY_NAME[name]
    spelling = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"
    return typer.Option(spelling, envvar=setting.env, help=setting.help)


def model_argument() -> Any:
    """The model to serve or talk to."""
    setting = OPTIONS_BY_NAME["model"]
    return typer.Argument(envvar=setting.env, help=setting.help)


def json_flag() -> Any:
    """``--json`` of the commands that report something."""
    return typer.Option("--json", "-j", help="Print JSON.")
