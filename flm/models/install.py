"""Putting a model into the store and taking it out: whole or not at all, one process at a time.

A pull works in ``.staging/<slug>``, which outlives an interruption, and ends in one rename. A
lock file for each model keeps two processes apart; the system drops it when its holder dies.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from filelock import FileLock, Timeout

from flm.errors import ConfigError, DownloadError, ModelFileError
from flm.models.manifest import new_manifest, write_manifest
from flm.models.names import ModelRef
from flm.models.sources.base import Progress, Receipt


class Installer:
    """Changes the folder of installed models at ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def install(self, ref: ModelRef, is_wanted: Callable[[], bool], progress: Progress) -> bool:
        """Fetch a model and move it into place; False when it is not wanted after all.

        ``is_wanted`` is asked once this process is the only one at work on the model.

        Raises:
            DownloadError: it could not be fetched whole; nothing is installed then, and what
                was there before is untouched.
        """
        with self._lock(ref, progress):
            if not is_wanted():
                return False
            try:
                self._fetch_and_place(ref, progress)
            except OSError as error:
                raise _disk_error(ref, error) from error
            return True

    def remove(self, ref: ModelRef) -> int | None:
        """Delete the model and what unfinished pulls left; the bytes freed, None if nothing was.

        Raises:
            ModelFileError: another process is pulling it.
        """
        if not self.root.is_dir():
            return None
        with self._lock(ref, None):
            doomed = [ref.folder_in(self.root), self._staging(ref), *self._trash(ref)]
            found = [folder for folder in doomed if folder.exists()]
            freed = sum(_tree_size(folder) for folder in found)
            for folder in found:
                self._discard(ref, folder)
        return freed if found else None

    # --- steps ---------------------------------------------------------------------------------

    def _fetch_and_place(self, ref: ModelRef, progress: Progress) -> None:
        files, work = self._staging(ref) / "files", self._staging(ref) / "work"
        files.mkdir(parents=True, exist_ok=True)
        work.mkdir(parents=True, exist_ok=True)
        receipt = ref.source.fetch(files, work, progress)
        _prune(files, receipt)
        write_manifest(files, new_manifest(ref.name, ref.source.to_dict(), receipt))
        self._place(ref, files)
        shutil.rmtree(self._staging(ref))

    def _place(self, ref: ModelRef, files: Path) -> None:
        """Swap the finished folder in. The old one, if any, comes back when that fails."""
        target = ref.folder_in(self.root)
        if not target.exists():
            files.rename(target)
            return
        old = self._new_trash(ref)
        target.rename(old)
        try:
            files.rename(target)
        except OSError:
            old.rename(target)
            raise
        shutil.rmtree(old)

    def _discard(self, ref: ModelRef, folder: Path) -> None:
        # Renamed first, so that a half-deleted model is never taken for an installed one.
        doomed = self._new_trash(ref)
        folder.rename(doomed)
        shutil.rmtree(doomed)

    # --- places --------------------------------------------------------------------------------

    def _staging(self, ref: ModelRef) -> Path:
        return self.root / ".staging" / ref.slug

    def _trash(self, ref: ModelRef) -> Iterator[Path]:
        return (self.root / ".trash").glob(f"{ref.slug}@*")

    def _new_trash(self, ref: ModelRef) -> Path:
        trash = self.root / ".trash"
        trash.mkdir(exist_ok=True)
        return trash / f"{ref.slug}@{uuid4().hex}"

    @contextmanager
    def _lock(self, ref: ModelRef, progress: Progress | None) -> Iterator[None]:
        """Hold the model's lock. Without ``progress`` a lock in use is an error, not a wait."""
        folder = self.root / ".locks"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(folder / f"{ref.slug}.lock")
            _acquire(lock, ref, progress)
        except OSError as error:
            raise ConfigError(
                f"Models are kept in {self.root}, which cannot be written ({error.strerror}). "
                "Set FLM_MODEL_PATH to a folder of yours."
            ) from error
        try:
            yield
        finally:
            lock.release()


def _acquire(lock: FileLock, ref: ModelRef, progress: Progress | None) -> None:
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        if progress is None:
            raise ModelFileError(
                f"Another process is pulling {ref.name}. Try again when it is done."
            ) from error
        progress.begin(f"waiting for another process that pulls {ref.name}", None)
        lock.acquire()


def _prune(files: Path, receipt: Receipt) -> None:
    """Delete what an earlier run for another revision left among the files."""
    wanted = {file.path for file in receipt.files}
    for path in files.rglob("*"):
        if path.is_file() and path.relative_to(files).as_posix() not in wanted:
            path.unlink()


def _tree_size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _disk_error(ref: ModelRef, error: OSError) -> DownloadError:
    where = f" ({os.fspath(error.filename)})" if error.filename else ""
    return DownloadError(
        f"{ref.name} could not be written: {error.strerror}{where}. Free some space or set "
        "FLM_MODEL_PATH to another folder, then pull again."
    )
