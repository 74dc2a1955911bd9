"""``flm pull``."""

from typing import Annotated

import typer

from flm.cli.console import note, say, size_text


def pull(
    model: Annotated[str, typer.Argument(help="A catalogue tag or a hub id.")],
    force: Annotated[
        bool, typer.Option("--force", help="Download it even when it is installed.")
    ] = False,
) -> None:
    """Download and install a model. An interrupted pull goes on where it stopped."""
    from flm.cli.progress import DownloadDisplay
    from flm.models.store import open_store

    store = open_store()
    try:
        with DownloadDisplay() as display:
            result = store.pull(model, display, force=force)
    except KeyboardInterrupt:
        note("\nInterrupted. What has arrived is kept: pull again to go on.")
        raise
    if not result.is_new:
        say("Model already downloaded. Use --force to re-download.")
        return
    say(f"Installed {result.model.name} ({size_text(result.size)}) in {result.model.path}")
