"""``flm remove``."""

from typing import Annotated

import typer

from flm.cli.console import say, size_text


def remove(
    model: Annotated[str, typer.Argument(help="An installed model's tag or hub id.")],
) -> None:
    """Delete an installed model and what unfinished pulls of it left."""
    from flm.models.store import open_store

    store = open_store()
    freed = store.remove(model)
    say(f"Removed {store.reference(model).name} ({size_text(freed)} freed).")
