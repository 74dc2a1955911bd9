"""``flm check``."""

from typing import Annotated

import typer

from flm.cli.console import say
from flm.errors import ModelFileError


def check(
    model: Annotated[str, typer.Argument(help="An installed model's tag or hub id.")],
) -> None:
    """Compare an installed model's files with the sizes and hashes they were installed with.

    A path cannot be checked: nothing is known of what it should hold.
    """
    from flm.models.store import open_store

    store = open_store()
    checks = store.check(model)
    name = store.reference(model).name
    for file in checks:
        say(f"ok       {file.path.name}" if file.problem is None else f"DAMAGED  {file.problem}")
    if any(file.problem is not None for file in checks):
        raise ModelFileError(f"{name} is damaged. Install it again with: flm pull {name} --force")
    say(f"{name}: {_all_well(len(checks))}")


def _all_well(num_files: int) -> str:
    if num_files == 1:
        return "the one file is as it should be."
    return f"all {num_files} files are as they should be."
