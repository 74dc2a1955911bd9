"""What every source of models shares: what it reports while it works, what it hands over, and
how a file is checked."""

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from flm.errors import DownloadError

BLOCK_SIZE = 1 << 20


class Progress(Protocol):
    """Told what goes on. Sizes are in bytes."""

    def begin(self, label: str, total: int | None) -> None:
        """A new piece of work starts (and the one before is over)."""

    def advance(self, num_bytes: int) -> None:
        """So many more bytes of it are done."""


class Silent:
    """A ``Progress`` that tells nobody."""

    def begin(self, label: str, total: int | None) -> None:
        """Ignore it."""

    def advance(self, num_bytes: int) -> None:
        """Ignore it."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as it was fetched and verified. ``path`` is relative to the model's folder."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a source fetched: the exact revision and every file.

    ``model_file`` is the one GGUF file to load, or None when the folder is the model.
    """

    revision: str
    files: tuple[StoredFile, ...]
    model_file: str | None


class Source(Protocol):
    """A place to fetch one model from."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, for manifests and listings."""

    def fetch(self, dest: Path, work: Path, progress: Progress) -> Receipt:
        """Fetch and verify the model's files into ``dest``.

        ``work`` is scratch space that survives an interruption, so that a second call can
        resume. Both folders exist and belong to this call alone.

        Raises:
            DownloadError: the model could not be fetched whole; the message names the remedy.
        """


@dataclass(frozen=True, slots=True)
class Digest:
    """What a file's content is: size in bytes and hashes in lower-case hex.

    ``git_sha1`` is the hash git gives the content as a blob: SHA-1 of ``blob <size>``, a zero
    byte and the content.
    """

    size: int
    sha256: str
    git_sha1: str


def blocks(path: Path) -> Iterator[bytes]:
    """The content of a file, a mebibyte at a time."""
    with path.open("rb") as file:
        while block := file.read(BLOCK_SIZE):
            yield block


def digest_file(path: Path, progress: Progress) -> Digest:
    """Read a file once and hash it."""
    size = path.stat().st_size
    sha256 = hashlib.sha256()
    git_sha1 = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    # Only small files are git blobs; large ones are known by their sha256 alone.
    wants_git = size < 64 * BLOCK_SIZE
    for block in blocks(path):
        sha256.update(block)
        if wants_git:
            git_sha1.update(block)
        progress.advance(len(block))
    return Digest(size, sha256.hexdigest(), git_sha1.hexdigest() if wants_git else "")


def safe_path(folder: Path, relative: str) -> Path:
    """``folder / relative``, for a name that came from outside.

    Raises:
        DownloadError: the name would leave the folder.
    """
    parts = PurePosixPath(relative).parts
    unsafe = not parts or relative.startswith("/") or "\\" in relative or "\0" in relative
    if unsafe or any(part == ".." or ":" in part for part in parts):
        raise DownloadError(f"The source names a file outside the model's folder: {relative!r}.")
    return folder.joinpath(*parts)


def require_space(folder: Path, num_bytes: int) -> None:
    """Make sure that ``num_bytes`` fit on the disk that holds ``folder``.

    Raises:
        DownloadError: they do not.
    """
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        raise DownloadError(
            f"The download needs {num_bytes / 1e9:.2f} GB, and {folder} has {free / 1e9:.2f} GB "
            "free. Free some space, or set FLM_MODEL_PATH to a folder on a larger disk."
        )
