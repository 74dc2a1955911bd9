"""``flm port``."""

from typing import Annotated

from flm.cli.console import say, say_json
from flm.cli.options import json_flag, option
from flm.config import DEFAULT_PORT, ServeConfig


def port(
    number: Annotated[int, option("port", "-p")] = DEFAULT_PORT,
    as_json: Annotated[bool, json_flag()] = False,
) -> None:
    """Print the port that `flm serve` would listen on."""
    config = ServeConfig(port=number)
    if as_json:
        say_json({"port": config.port})
    else:
        say(f"Server Port: {config.port}")
