"""Streaming requests to an OpenAI-compatible server, with a clock beside them."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

import httpx

from flm.bench.errors import BenchError
from flm.bench.reply import Message, Reply

TIMEOUT_S = 600.0
Heard = Callable[[], None]
"""Called whenever a piece of a reply has come."""
TEXT_FIELDS = ("content", "reasoning_content", "reasoning")


class _BadRequestError(BenchError):
    """HTTP 400."""


class OpenAIClient:
    """Chat completions of one model at one base URL (with or without ``/v1``)."""

    def __init__(self, base_url: str, model: str | None = None) -> None:
        root = base_url.rstrip("/").removesuffix("/v1")
        self.base_url = root
        # A proxy of the machine must not stand between us and loopback, and a connection that
        # the server closed while it was idle must not be used again.
        self._http = httpx.Client(
            base_url=root,
            timeout=TIMEOUT_S,
            trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )
        self.model = model if model is not None else self._first_model()
        self._extensions: dict[str, Any] = {"ignore_eos": True}

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def context_len(self) -> int:
        """Tokens that the model's context holds, as a server of ours tells.

        Raises:
            BenchError: it does not.
        """
        path = f"/v1/models/{quote(self.model, safe='')}"
        try:
            return int(self._http.get(path).raise_for_status().json()["context_length"])
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            raise BenchError(f"{self.base_url}{path} tells no context length: {error}") from error

    def _first_model(self) -> str:
        try:
            data = self._http.get("/v1/models").raise_for_status().json()["data"]
            return str(data[0]["id"])
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            raise BenchError(
                f"{self.base_url}/v1/models names no model ({error}). "
                "Is the server running? Name a model with --model."
            ) from error

    def generate(
        self, messages: Sequence[Message], max_tokens: int, heard: Heard | None = None
    ) -> Reply:
        """Answer greedily with ``max_tokens`` tokens (fewer where the server ends by itself).

        Raises:
            BenchError: the server failed, or sent no usage to count tokens by.
        """
        body = {
            "model": self.model,
            "messages": list(messages),
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        try:
            return self._stream(body | self._extensions, heard)
        except _BadRequestError:
            if not self._extensions:
                raise
        # OpenAI's own API and others reject fields they do not know.
        reply = self._stream(body, heard)
        self._extensions = {}
        return reply

    def _stream(self, body: dict[str, Any], heard: Heard | None) -> Reply:
        start = time.perf_counter()
        try:
            with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
                if response.is_error:
                    text = response.read().decode(errors="replace")[:500]
                    is_bad = response.status_code == httpx.codes.BAD_REQUEST
                    kind = _BadRequestError if is_bad else BenchError
                    raise kind(f"{self.base_url}: HTTP {response.status_code}: {text}")
                return self._read(_events(response), start, heard)
        except httpx.HTTPError as error:
            raise BenchError(f"{self.base_url}: {type(error).__name__}: {error}") from error

    def _read(self, events: Iterator[dict[str, Any]], start: float, heard: Heard | None) -> Reply:
        times: list[float] = []
        usage: dict[str, Any] | None = None
        pieces: list[str] = []
        for event in events:
            now = time.perf_counter() - start
            if event.get("error"):
                raise BenchError(f"{self.base_url}: error within the stream: {event['error']}")
            usage = event.get("usage") or usage
            for choice in event.get("choices") or ():
                piece = _text_of(choice)
                if piece or choice.get("finish_reason"):
                    pieces.append(piece)
                    times.append(now)
                    if heard is not None:
                        heard()
        if usage is None or not times:
            raise BenchError(
                f"{self.base_url} sends no usage in its streams, so tokens cannot be counted."
            )
        return _reply(usage, "".join(pieces), times)


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            try:
                event = json.loads(data)
            except ValueError as error:
                raise BenchError(f"a line of the stream is not JSON: {data[:200]}") from error
            if isinstance(event, dict):
                yield event


def _text_of(choice: dict[str, Any]) -> str:
    delta = choice.get("delta") or {}
    return "".join(delta.get(name) or "" for name in TEXT_FIELDS)


def _reply(usage: dict[str, Any], text: str, times: Sequence[float]) -> Reply:
    details = usage.get("prompt_tokens_details") or {}
    return Reply(
        text=text,
        prompt_tokens=int(usage["prompt_tokens"]),
        cached_tokens=int(details.get("cached_tokens") or 0),
        completion_tokens=int(usage["completion_tokens"]),
        first_token_s=times[0],
        last_token_s=times[-1],
        times=tuple(times),
    )
