"""The record of one installed model: where it came from and what its files must be."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flm.errors import DownloadError, ModelFileError
from flm.models.sources.base import Receipt, StoredFile, safe_path

MANIFEST_NAME = "manifest.flm.json"
"""Not ``manifest.json``: a repository may hold a file of that name."""

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """``source`` is the source's JSON form, ``model_file`` the GGUF to load (None: the folder)."""

    name: str
    source: Mapping[str, Any]
    revision: str
    files: tuple[StoredFile, ...]
    model_file: str | None
    installed_at: str

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def digest(self) -> str:
        """SHA-256 of the model in hexadecimal: that of its only file, else of the list of all, a
        line ``hash  path`` each."""
        if len(self.files) == 1:
            return self.files[0].sha256
        lines = sorted(f"{file.sha256}  {file.path}\n" for file in self.files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def new_manifest(name: str, source: Mapping[str, Any], receipt: Receipt) -> Manifest:
    """The manifest of a model that was fetched just now."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Manifest(name, source, receipt.revision, receipt.files, receipt.model_file, now)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it into the model's folder."""
    data = {"format": _FORMAT, **asdict(manifest)}
    text = json.dumps(data, indent=2) + "\n"
    with (folder / MANIFEST_NAME).open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of an installed model; None when the folder has none.

    Raises:
        ModelFileError: it is there and cannot be read.
    """
    path = folder / MANIFEST_NAME
    if not path.is_file():
        return None
    try:
        return _parse(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DownloadError) as error:
        raise ModelFileError(
            f"{path} is damaged ({error}). Pull the model again with --force, or delete the "
            f"folder {folder}."
        ) from error


def _parse(data: Mapping[str, Any]) -> Manifest:
    if data["format"] != _FORMAT:
        raise ValueError(f"format {data['format']!r} is not {_FORMAT}")
    files = tuple(
        StoredFile(path=str(item["path"]), size=int(item["size"]), sha256=str(item["sha256"]))
        for item in data["files"]
    )
    for file in files:
        safe_path(Path(), file.path)
    model_file = data["model_file"]
    if model_file is not None and model_file not in {file.path for file in files}:
        raise ValueError(f"{model_file!r} is not among its files")
    return Manifest(
        name=str(data["name"]),
        source=data["source"],
        revision=data["revision"],
        files=files,
        model_file=model_file,
        installed_at=data["installed_at"],
    )
