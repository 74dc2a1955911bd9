"""A stand-in for the Hugging Face hub: the few routes a download needs, with faults on demand."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True)
class Seen:
    """A request the hub got."""

    method: str
    path: str
    host: str
    range: str | None
    authorization: str | None


@dataclass
class FakeHub:
    """The hub's content and its faults.

    ``cuts`` and ``statuses`` are used up one by one: after how many bytes the next replies for a
    file break off, and what the next requests for a path are answered with. ``listed`` overrides
    what the listing says of a file. With ``redirects`` files are served under another host name.
    """

    url: str = ""
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    commit: str = COMMIT
    cuts: dict[str, list[int]] = field(default_factory=dict)
    statuses: dict[str, list[int]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    listed: dict[str, dict[str, Any]] = field(default_factory=dict)
    ignores_range: bool = False
    redirects: bool = False
    seen: list[Seen] = field(default_factory=list)

    def gets(self, name: str) -> list[Seen]:
        """The GET requests for a file of that name, in order."""
        return [item for item in self.seen if item.method == "GET" and item.path.endswith(name)]


def git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def sibling(name: str, content: bytes) -> dict[str, Any]:
    """A file as the listing describes it."""
    entry: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": git_sha1(content)}
    if name.endswith((".gguf", ".safetensors")):
        sha256 = hashlib.sha256(content).hexdigest()
        entry["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 134}
    return entry


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Keep the tests' output clean."""

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        header = self.headers.get
        self.hub.seen.append(
            Seen(self.command, path, header("Host", ""), header("Range"), header("Authorization"))
        )
        for key, statuses in self.hub.statuses.items():
            if path.endswith(key) and statuses:
                self._reply(statuses.pop(0), b"{}", self.hub.headers)
                return
        if path.startswith("/api/models/"):
            self._list(path.removeprefix("/api/models/").partition("/revision/")[0])
        elif "/resolve/" in path:
            self._resolve(path)
        else:
            self._reply(404, b"{}")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _list(self, repo: str) -> None:
        files = self.hub.repos.get(repo)
        if files is None:
            headers = {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}
            self._reply(404, b"{}", headers)
            return
        siblings = [
            sibling(name, content) | self.hub.listed.get(name, {})
            for name, content in files.items()
        ]
        body = {"id": repo, "modelId": repo, "sha": self.hub.commit, "siblings": siblings}
        self._reply(200, json.dumps(body).encode())

    def _resolve(self, path: str) -> None:
        repo, _, rest = path.removeprefix("/").partition("/resolve/")
        name = rest.partition("/")[2]
        content = self.hub.repos.get(repo, {}).get(name)
        if content is None:
            self._reply(404, b"{}", {"X-Error-Code": "EntryNotFound"})
        elif self.hub.redirects and self.headers["Host"].startswith("127.0.0.1"):
            target = f"http://localhost:{self.server.server_port}{path}"  # type: ignore[attr-defined]
            self._reply(302, b"", {"Location": target})
        else:
            self._send_file(name, content)

    def _send_file(self, name: str, content: bytes) -> None:
        start, status = 0, 200
        headers = {"ETag": f'"{git_sha1(content)}"', "X-Repo-Commit": self.hub.commit}
        asked = self.headers.get("Range")
        if asked is not None and not self.hub.ignores_range:
            start, status = int(asked.removeprefix("bytes=").rstrip("-")), 206
            if start >= len(content):
                self._reply(416, b"", {"Content-Range": f"bytes */{len(content)}"})
                return
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        body = content[start:]
        cuts = self.hub.cuts.get(name)
        self._reply(status, body, headers, cut=cuts.pop(0) if cuts else None)

    def _reply(
        self,
        status: int,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        cut: int | None = None,
    ) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if cut is None else body[:cut])
        if cut is not None:
            self.close_connection = True


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """A hub on a free port of this machine, for as long as the block runs."""
    hub = FakeHub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        hub.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
