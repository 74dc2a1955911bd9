"""Reading the JSON files of a model folder, with errors that say what to do."""

import json
from pathlib import Path
from typing import Any

from flm.errors import ModelFileError


def read_text(path: Path) -> str:
    """The UTF-8 text of a file. Raises ModelFileError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror
        raise ModelFileError(
            f"{path} cannot be read: {reason}. Check the path and its rights."
        ) from error
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{path} is damaged: not UTF-8. Fetch the model again.") from error


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ModelFileError for anything else."""
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(
            f"{path} is damaged: not valid JSON ({error}). Fetch the model again."
        ) from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path} is damaged: not a JSON object. Fetch the model again.")
    return value


def read_object_if_there(path: Path) -> dict[str, Any]:
    """The JSON object in a file, empty where there is no such file."""
    return read_object(path) if path.is_file() else {}
