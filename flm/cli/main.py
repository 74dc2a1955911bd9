"""``flm``: the commands and how their errors reach the user.

Only light modules are imported here; each command imports what it needs when it runs.
"""

import io
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from flm.cli.ask import ask, plan
from flm.cli.bench import bench
from flm.cli.check import check
from flm.cli.listing import list_models
from flm.cli.port import port
from flm.cli.pull import pull
from flm.cli.remove import remove
from flm.cli.run import run
from flm.cli.serve import serve
from flm.cli.validate import validate
from flm.cli.version import print_version, version
from flm.errors import FlmError

INTERRUPTED = 130
"""The exit code that shells give to a program ended by Ctrl-C."""


class _Commands(TyperGroup):
    """Turns our errors into one message and an exit code, whatever command raised them."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except FlmError as error:
            typer.echo(f"Error: {error.message}", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            typer.echo("", err=True)
            raise typer.Exit(INTERRUPTED) from error


app = typer.Typer(
    cls=_Commands,
    help="A local inference server for OpenAI clients.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", "-v", callback=print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """A local inference server for OpenAI clients."""


app.command("serve")(serve)
app.command("run")(run)
app.command("ask")(ask)
app.command("plan")(plan)
app.command("list")(list_models)
app.command("pull")(pull)
app.command("remove")(remove)
app.command("check")(check)
app.command("validate")(validate)
app.command("bench")(bench)
app.command("port")(port)
app.command("version")(version)


def main() -> None:
    """The program's entry point. Ends the process with an exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a character gets a question mark, not a traceback.
        sys.stdout.reconfigure(errors="replace")
    try:
        app(prog_name="flm")
    except BrokenPipeError:
        # The reader went away (`flm list | head`): say nothing, also not at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
