"""Models from the Hugging Face hub, or from any server that speaks its protocol.

The hub's own library lists the files and knows the user's token, endpoint (``HF_ENDPOINT``) and
offline mode. The transfer is ours, because the library no longer resumes a download that an
earlier process began.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import quote

from flm.errors import DownloadError
from flm.models.sources.base import (
    Digest,
    Progress,
    Receipt,
    StoredFile,
    digest_file,
    require_space,
    safe_path,
)
from flm.models.sources.http import Downloader, RemoteFile
from flm.version import __version__

DEFAULT_ENDPOINT = "https://huggingface.co"
FOLDER_PATTERNS = (
    "*.json",
    "*.jinja",
    "additional_chat_templates/*.jinja",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
)
"""What a Hugging Face folder needs beside its weights: settings, tokenizer, chat templates."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a repository at one commit."""

    commit: str
    files: tuple[RemoteFile, ...]


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository of the hub: its safetensors folder, or the one GGUF file ``file``."""

    repo: str
    file: str | None = None
    revision: str = "main"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, for manifests and listings."""
        pairs = {"kind": "hub", "repo": self.repo, "revision": self.revision, "file": self.file}
        return {key: value for key, value in pairs.items() if value is not None}

    def fetch(self, dest: Path, work: Path, progress: Progress) -> Receipt:
        """Fetch the files that are needed, each verified against the hub's own size and hash.

        Raises:
            DownloadError: the repository or a file cannot be had, or arrives damaged.
        """
        progress.begin(f"listing {self.repo}", None)
        listing = list_files(self.repo, self.revision)
        chosen = choose_files(listing.files, self.repo, self.file)
        parts = work / listing.commit
        missing = sum(file.size for file in chosen) - _bytes_under(dest) - _bytes_under(parts)
        require_space(dest, max(missing, 0))
        import httpx  # only for downloads: the server starts without it

        with httpx.Client(
            headers=_headers(), follow_redirects=True, timeout=httpx.Timeout(30.0, connect=10.0)
        ) as client:
            downloader = Downloader(client, progress)
            stored = tuple(_fetch_one(downloader, f, dest, parts, progress) for f in chosen)
        model_file = chosen[0].path if chosen[0].path.endswith(".gguf") else None
        return Receipt(listing.commit, stored, model_file)


# --- what the repository has -------------------------------------------------------------------


def list_files(repo: str, revision: str) -> Listing:
    """The files of a repository with their sizes and hashes.

    Raises:
        DownloadError: the repository cannot be read; the message names the remedy.
    """
    # Imported late: it takes a quarter of a second that no other command should pay.
    from huggingface_hub import HfApi

    endpoint = _endpoint()
    try:
        info = HfApi(endpoint=endpoint).model_info(
            repo, revision=revision, files_metadata=True, timeout=30.0
        )
    except Exception as error:
        raise explain(error, repo, revision, endpoint) from error
    if info.sha is None or info.siblings is None:
        raise DownloadError(f"{endpoint} does not list the files of {repo}. Is it a hub?")
    files = (_remote_file(sibling, repo, info.sha, endpoint) for sibling in info.siblings)
    return Listing(info.sha, tuple(file for file in files if file is not None))


def _remote_file(sibling: Any, repo: str, commit: str, endpoint: str) -> RemoteFile | None:
    if sibling.size is None:
        return None
    return RemoteFile(
        path=sibling.rfilename,
        url=f"{endpoint}/{repo}/resolve/{commit}/{quote(sibling.rfilename)}",
        size=sibling.size,
        sha256=sibling.lfs.sha256 if sibling.lfs is not None else None,
        git_sha1=sibling.blob_id if sibling.lfs is None else None,
    )


def choose_files(
    files: Iterable[RemoteFile], repo: str, gguf: str | None
) -> tuple[RemoteFile, ...]:
    """The files a model needs, out of all that the repository has.

    ``gguf`` names one GGUF file. Without it the safetensors folder is taken, else the only GGUF.

    Raises:
        DownloadError: the file is not there, there is nothing to load, or the choice is not clear.
    """
    by_path = {file.path: file for file in files}
    ggufs = sorted(path for path in by_path if path.endswith(".gguf"))
    if gguf is not None:
        if gguf not in by_path:
            raise _no_such_file(repo, gguf, ggufs)
        return (by_path[_single_gguf(gguf, repo)],)
    weights = _weights(by_path)
    if weights and "config.json" in by_path:
        others = (path for path in by_path if _is_needed(path))
        return tuple(by_path[path] for path in sorted({*weights, *others}))
    if len(ggufs) == 1:
        return (by_path[_single_gguf(ggufs[0], repo)],)
    raise _unclear(repo, ggufs)


def _weights(paths: Iterable[str]) -> list[str]:
    """The top-level safetensors files that ``transformers`` would load."""
    tensors = [path for path in paths if path.endswith(".safetensors") and "/" not in path]
    # A second copy of the weights, or an adapter, may lie beside the model itself.
    own = [path for path in tensors if path.startswith("model")]
    return own or [p for p in tensors if not p.startswith(("consolidated", "adapter"))]


def _is_needed(path: str) -> bool:
    # fnmatch lets * cross slashes, so the depth is compared too.
    return any(
        fnmatchcase(path, pattern) and path.count("/") == pattern.count("/")
        for pattern in FOLDER_PATTERNS
    )


def _single_gguf(path: str, repo: str) -> str:
    if re.search(r"-\d{5}-of-\d{5}\.gguf$", path) is not None:
        raise DownloadError(
            f"{path} of {repo} is one part of a split GGUF, which cannot be loaded. "
            "Choose a repository with the whole file, or join the parts with llama-gguf-split "
            "and give the path of the result."
        )
    return path


def _no_such_file(repo: str, gguf: str, ggufs: list[str]) -> DownloadError:
    known = f"It has: {', '.join(ggufs)}." if ggufs else "It has no GGUF file at all."
    return DownloadError(f"{repo} has no file {gguf!r}. {known}")


def _unclear(repo: str, ggufs: list[str]) -> DownloadError:
    if not ggufs:
        return DownloadError(
            f"{repo} has neither safetensors weights with a config.json nor a GGUF file. "
            "Choose a repository that has one of them."
        )
    return DownloadError(
        f"{repo} has several GGUF files. Name one, as in {repo}:{ggufs[0]}. "
        f"It has: {', '.join(ggufs)}."
    )


# --- one file ----------------------------------------------------------------------------------


def _fetch_one(
    downloader: Downloader, file: RemoteFile, dest: Path, parts: Path, progress: Progress
) -> StoredFile:
    """Fetch and verify one file, going on from what an earlier run left of it."""
    target = safe_path(dest, file.path)
    part = safe_path(parts, file.path + ".part")
    if target.is_file():
        target.replace(_made(part))
    is_resumed = part.exists()
    digest = _fetch_and_digest(downloader, file, part, progress)
    if not _matches(digest, file) and is_resumed:
        # The remains of the earlier run may be what is wrong.
        part.unlink()
        digest = _fetch_and_digest(downloader, file, part, progress)
    if not _matches(digest, file):
        part.unlink()
        raise DownloadError(
            f"{file.path} arrived damaged: its hash is not the one the hub lists. "
            "The damaged file was removed: pull again."
        )
    part.replace(_made(target))
    return StoredFile(file.path, digest.size, digest.sha256)


def _fetch_and_digest(
    downloader: Downloader, file: RemoteFile, part: Path, progress: Progress
) -> Digest:
    downloader.fetch(file, part)
    progress.begin(f"verifying {file.path}", file.size)
    return digest_file(part, progress)


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _matches(digest: Digest, file: RemoteFile) -> bool:
    if digest.size != file.size:
        return False
    if file.sha256 is not None:
        return digest.sha256 == file.sha256
    return not digest.git_sha1 or file.git_sha1 is None or digest.git_sha1 == file.git_sha1


def _bytes_under(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# --- the hub -----------------------------------------------------------------------------------


def _endpoint() -> str:
    chosen = os.environ.get("HF_ENDPOINT", "").strip()
    return (chosen or DEFAULT_ENDPOINT).rstrip("/")


def _headers() -> dict[str, str]:
    from huggingface_hub import get_token

    headers = {"User-Agent": f"flm/{__version__}"}
    token = get_token()
    return headers if token is None else {**headers, "Authorization": f"Bearer {token}"}


def explain(error: Exception, repo: str, revision: str, endpoint: str) -> DownloadError:
    """Say in the user's terms why the hub did not answer, and what to do."""
    from huggingface_hub import errors

    where = f"{endpoint}/{repo}"
    match error:
        case errors.GatedRepoError():
            text = (
                f"{repo} is gated: accept its terms at {where} and set HF_TOKEN to a token of "
                "that account."
            )
        case errors.RepositoryNotFoundError():
            text = (
                f"The hub has no repository {repo}, or it is private. Check the name; for a "
                "private one set HF_TOKEN."
            )
        case errors.RevisionNotFoundError():
            text = f"{repo} has no revision {revision!r}."
        case errors.OfflineModeIsEnabled():
            text = (
                f"{repo} has to be downloaded, and HF_HUB_OFFLINE forbids it. Unset it, or give "
                "the path of a model that is on this machine."
            )
        case errors.HFValidationError():
            text = f"{repo!r} cannot be the name of a repository. It has the form org/name."
        case _:
            text = (
                f"{endpoint} could not be asked for {repo} ({_first_line(error)}). Check the "
                "network (and HF_ENDPOINT, HTTPS_PROXY), then pull again."
            )
    return DownloadError(text)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
