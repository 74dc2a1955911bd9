"""Errors that both weight readers raise."""

from pathlib import Path
from typing import NoReturn

from flm.errors import ModelFileError


def missing_tensor(path: Path, name: str) -> NoReturn:
    """Raise the ModelFileError for a tensor that the configuration needs and nobody has."""
    raise ModelFileError(
        f"{path}: the tensor {name!r} is missing. Fetch the model again, or use a file that "
        "has all weights."
    )


def check_shape(path: Path, name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Raise ModelFileError where a tensor is not what the configuration says."""
    if found != wanted:
        raise ModelFileError(
            f"{path}: the tensor {name!r} has the shape {list(found)}, the configuration says "
            f"{list(wanted)}. Fetch the model again."
        )
