"""``flm run``: talk to a server that is already there."""

from typing import Annotated

import typer

from flm.cli.options import option
from flm.config import DEFAULT_HOST, DEFAULT_PORT, ServeConfig


def run(
    model: Annotated[
        str | None, typer.Argument(help="The model to talk to. Default: the one that is loaded.")
    ] = None,
    host: Annotated[str, option("host", help="Address of the server.")] = DEFAULT_HOST,
    port: Annotated[int, option("port", "-p", help="Port of the server.")] = DEFAULT_PORT,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-i", help="Send this one message and end.")
    ] = None,
) -> None:
    """Chat with a `flm serve` that is running. Type /help for the commands, /bye to leave."""
    from flm.cli.chat import ChatClient, Repl, base_url

    config = ServeConfig(host=host, port=port)
    with ChatClient(base_url(config.host, config.port), model) as client:
        client.require_server()
        client.require_model()
        repl = Repl(client)
        if prompt is not None:
            repl.ask(prompt)
        else:
            repl.loop()
