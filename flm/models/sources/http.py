"""Download one file over HTTP, resuming where an earlier attempt or an earlier run stopped."""

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flm.errors import DownloadError
from flm.models.sources.base import Progress

if TYPE_CHECKING:
    import httpx

MAX_ATTEMPTS = 5
FIRST_WAIT_S = 0.5
MAX_WAIT_S = 30.0
RETRY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file to fetch: its name in the model's folder, its URL, and what it must turn out to be.

    ``size`` in bytes; a hash that is None is not known.
    """

    path: str
    url: str
    size: int
    sha256: str | None = None
    git_sha1: str | None = None


class _InterruptedError(Exception):
    """The transfer broke off in a way that another attempt may mend."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class Downloader:
    """Fetches files with one HTTP client, waiting longer after each failed attempt."""

    def __init__(self, client: "httpx.Client", progress: Progress) -> None:
        self._client = client
        self._progress = progress

    def fetch(self, file: RemoteFile, part: Path) -> None:
        """Bring ``part`` to exactly ``file.size`` bytes, keeping those already there.

        Attempts that bring bytes do not count: it gives up after five in a row without any.

        Raises:
            DownloadError: the server refused, or it kept breaking off.
        """
        part.parent.mkdir(parents=True, exist_ok=True)
        self._progress.begin(file.path, file.size)
        self._progress.advance(min(_size(part), file.size))
        num_failures = 0
        best_size = _size(part)
        # A file of no bytes must still be made, hence the check for existence.
        while not part.exists() or _size(part) != file.size:
            try:
                self._attempt(file, part)
            except _InterruptedError as error:
                num_failures = 0 if _size(part) > best_size else num_failures + 1
                best_size = max(best_size, _size(part))
                if num_failures >= MAX_ATTEMPTS:
                    raise _gave_up(file, error) from error
                time.sleep(_wait_s(error, num_failures))

    def _attempt(self, file: RemoteFile, part: Path) -> None:
        """One GET from where ``part`` ends. Returns normally only when it is complete."""
        start = _size(part)
        if start > file.size:
            part.unlink()
            start = 0
        headers = {"Accept-Encoding": "identity"}
        if start > 0:
            headers["Range"] = f"bytes={start}-"
        from httpx import TransportError

        try:
            with self._client.stream("GET", file.url, headers=headers) as response:
                self._receive(response, file, part, start)
        except TransportError as error:
            raise _InterruptedError(str(error) or type(error).__name__) from error
        if _size(part) < file.size:
            raise _InterruptedError(f"the server sent {_size(part)} of {file.size} bytes")

    def _receive(
        self, response: "httpx.Response", file: RemoteFile, part: Path, start: int
    ) -> None:
        _raise_for_status(response, file)
        resumes = response.status_code == 206 and _range_start(response) == start
        if response.status_code == 416 or (response.status_code == 206 and not resumes):
            part.unlink(missing_ok=True)
            raise _InterruptedError("the server cannot resume; starting over")
        if start > 0 and not resumes:
            self._progress.begin(file.path, file.size)
        with part.open("ab" if resumes else "wb") as out:
            room = file.size - (start if resumes else 0)
            # Without a block size, so that what has arrived is written when the line breaks.
            for block in response.iter_bytes():
                room -= len(block)
                if room < 0:
                    part.unlink()
                    raise _too_long(file)
                out.write(block)
                self._progress.advance(len(block))
            out.flush()
            os.fsync(out.fileno())


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _range_start(response: "httpx.Response") -> int | None:
    """Where the bytes of a 206 begin; None when it does not say or they are encoded."""
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    is_plain = response.headers.get("Content-Encoding", "identity") == "identity"
    return int(match[1]) if match is not None and is_plain else None


def _raise_for_status(response: "httpx.Response", file: RemoteFile) -> None:
    status = response.status_code
    if status in (200, 206, 416):
        return
    if status in RETRY_STATUSES:
        asked = response.headers.get("Retry-After", "")
        wait_s = float(asked) if asked.isdecimal() else None
        raise _InterruptedError(f"the server answered HTTP {status}", wait_s)
    if status in (401, 403):
        raise DownloadError(
            f"The server refuses {file.path} (HTTP {status}). If the model is gated, accept its "
            "terms on its page, set HF_TOKEN to a token of that account, and pull again."
        )
    raise DownloadError(
        f"The server answered HTTP {status} for {file.path}. Check the model's name, or pull "
        "again later."
    )


def _wait_s(error: _InterruptedError, num_failures: int) -> float:
    wait_s = error.wait_s if error.wait_s is not None else FIRST_WAIT_S * 2.0**num_failures
    return min(wait_s, MAX_WAIT_S)


def _too_long(file: RemoteFile) -> DownloadError:
    return DownloadError(
        f"The server sends more than the {file.size} bytes that {file.path} should have. "
        "The source may be changing right now: pull again."
    )


def _gave_up(file: RemoteFile, error: Exception) -> DownloadError:
    return DownloadError(
        f"The download of {file.path} broke off {MAX_ATTEMPTS} times ({error}). "
        "What has arrived is kept: pull again to go on."
    )
