"""A small OpenAI-compatible server in a thread, for tests of what talks to one.

A word is a token and the template adds ``OVERHEAD`` of them; every reply has as many tokens as
were asked for, or ends after ``natural_len`` where the end cannot be ignored.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OVERHEAD = 7


@dataclass(slots=True)
class Behaviour:
    """What the server does, and what it was asked."""

    rejects_extensions: bool = False
    sends_usage: bool = True
    fails_with: int | None = None
    breaks_off: bool = False
    natural_len: int = 5
    cached_tokens: int = 0
    pace_s: float = 0.0
    bodies: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FakeOpenAI:
    """A running fake."""

    base_url: str
    behaviour: Behaviour

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.base_url.rpartition(":")[2])


@contextmanager
def fake_openai(behaviour: Behaviour | None = None) -> Iterator[FakeOpenAI]:
    """Run one on a free loopback port."""
    chosen = Behaviour() if behaviour is None else behaviour

    class Handler(_Handler):
        behaviour = chosen

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield FakeOpenAI(f"http://127.0.0.1:{server.server_port}", chosen)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    behaviour: Behaviour
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        """Be quiet."""

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._json(200, {"object": "list", "data": [{"id": "fake-1"}]})
        else:
            self._json(200 if self.path == "/health" else 404, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.behaviour.bodies.append(body)
        if self.behaviour.fails_with is not None:
            self._json(self.behaviour.fails_with, {"error": {"message": "out of order"}})
        elif self.behaviour.rejects_extensions and "ignore_eos" in body:
            self._json(400, {"error": {"message": "unknown field ignore_eos"}})
        else:
            self._stream(body)

    def _json(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b": keep-alive\n\n")
        for event in self._events(body):
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _events(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        wanted = body["max_tokens"]
        length = wanted if body.get("ignore_eos") else min(wanted, self.behaviour.natural_len)
        yield {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
        for number in range(length):
            time.sleep(self.behaviour.pace_s)
            yield {"choices": [{"delta": {"content": f" t{number}"}, "finish_reason": None}]}
            if self.behaviour.breaks_off:
                yield {"error": {"message": "the engine died"}}
                return
        yield {"choices": [{"delta": {}, "finish_reason": "length"}]}
        if self.behaviour.sends_usage:
            words = sum(len(message["content"].split()) for message in body["messages"])
            yield {"choices": [], "usage": self._usage(words + OVERHEAD, length)}

    def _usage(self, prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.behaviour.cached_tokens},
        }
