"""The chat behind ``flm run``: a client of the server's own API and a line-by-line dialogue."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self, TextIO
from urllib.parse import quote

import httpx

from flm.cli.console import note
from flm.errors import ConfigError, FlmError, InvalidRequestError, UnavailableError

Channel = Literal["content", "reasoning"]

SETTINGS: dict[str, tuple[str, type]] = {
    "temp": ("temperature", float),
    "topk": ("top_k", int),
    "topp": ("top_p", float),
    "minp": ("min_p", float),
    "rep-pen": ("repetition_penalty", float),
    "freq-pen": ("frequency_penalty", float),
    "pres-pen": ("presence_penalty", float),
    "gen-lim": ("max_tokens", int),
    "seed": ("seed", int),
    "r-eff": ("reasoning_effort", str),
}
"""What ``/set`` knows: the request field and how its value is read."""

HELP = f"""/set NAME VALUE  change a setting: sys-msg, {", ".join(SETTINGS)}
/clear           forget the conversation
/help            this list
/bye             leave (so does the end of the input)"""


def base_url(host: str, port: int) -> str:
    """Where a server with these settings is reached. An address that means "all" is local."""
    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not bound
    return f"http://[{target}]:{port}" if ":" in target else f"http://{target}:{port}"


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text of a reply as it arrives."""

    text: str
    channel: Channel


# --- the server --------------------------------------------------------------------------------


class ChatClient:
    """Streams replies from one server. A context manager."""

    def __init__(self, url: str, model: str | None, transport: httpx.BaseTransport | None = None):
        self.url = url
        self.model = model
        # The server is on this machine or a named one: a proxy has no business between.
        timeout = httpx.Timeout(None, connect=5.0)
        self._http = httpx.Client(
            base_url=url, timeout=timeout, transport=transport, trust_env=False
        )

    def __enter__(self) -> Self:
        """Nothing is opened before the first request."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection; a reply that still runs is cancelled by that."""
        self._http.close()

    def require_server(self) -> None:
        """Make sure that somebody answers.

        Raises:
            UnavailableError: nobody does, or it is not ready; the message says what to do.
        """
        try:
            response = self._http.get("/health", timeout=5.0)
        except httpx.TransportError as error:
            raise self._no_server() from error
        if response.status_code == 503:
            raise UnavailableError(f"The server at {self.url} is not ready: try again shortly.")
        if response.status_code != 200:
            raise ConfigError(
                f"What answers at {self.url} is not flm. Give the right --host and --port."
            )

    def require_model(self) -> None:
        """Make sure that the server has the model, if one was named.

        Raises:
            InvalidRequestError: it has not; the message is the server's own.
            UnavailableError: it does not answer.
        """
        if self.model is None:
            return
        try:
            response = self._http.get(f"/v1/models/{quote(self.model, safe='/:')}", timeout=30.0)
        except httpx.TransportError as error:
            raise self._broken(error) from error
        if response.status_code != 200:
            raise InvalidRequestError(_error_text(response))

    def stream(self, messages: list[dict[str, str]], settings: dict[str, Any]) -> Iterator[Piece]:
        """The reply to a conversation, piece by piece.

        Raises:
            FlmError: the server refused or failed; the message is its own.
        """
        body = {"messages": messages, "stream": True, **settings}
        if self.model is not None:
            body["model"] = self.model
        try:
            with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
                if response.status_code != 200:
                    response.read()
                    raise InvalidRequestError(_error_text(response))
                yield from _pieces(response.iter_bytes())
        except httpx.TransportError as error:
            raise self._broken(error) from error

    def _broken(self, error: httpx.TransportError) -> UnavailableError:
        return UnavailableError(f"The connection to {self.url} broke ({error}).")

    def _no_server(self) -> UnavailableError:
        command = "flm serve" if self.model is None else f"flm serve {self.model}"
        return UnavailableError(
            f"No server answers at {self.url}. Start one in another terminal with: {command}"
        )


def _error_text(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"The server answered HTTP {response.status_code}."


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines that end with a line feed. Text in a reply may hold any other kind of line break."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
    yield rest


def _pieces(chunks: Iterable[bytes]) -> Iterator[Piece]:
    """The text in the ``data:`` lines of an event stream; comments are skipped."""
    for line in _lines(chunks):
        data = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
        if not data or data == b"[DONE]":
            continue
        try:
            pieces = _event_pieces(json.loads(data))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnavailableError("The server sent something that is not a reply.") from error
        yield from pieces


def _event_pieces(event: Mapping[str, Any]) -> list[Piece]:
    if "error" in event:
        raise UnavailableError(str(event["error"]["message"]))
    deltas = [choice.get("delta", {}) for choice in event.get("choices", ())]
    fields: tuple[tuple[str, Channel], ...] = (
        ("reasoning_content", "reasoning"),
        ("content", "content"),
    )
    return [
        Piece(str(delta[name]), channel)
        for delta in deltas
        for name, channel in fields
        if delta.get(name)
    ]


# --- the dialogue ------------------------------------------------------------------------------


@dataclass(slots=True)
class Repl:
    """One conversation, read from stdin and written to stdout."""

    client: ChatClient
    messages: list[dict[str, str]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)

    def loop(self) -> None:
        """Read messages and commands until ``/bye`` or the end of the input."""
        is_terminal = sys.stdin.isatty()
        if is_terminal:
            note("Type a message, /help for the commands, /bye to leave.")
        while (line := _read_line(is_terminal)) is not None:
            text = line.strip()
            if text == "/bye":
                return
            if not text:
                continue
            try:
                self._handle(text)
            except FlmError as error:
                if not is_terminal:
                    raise
                note(f"Error: {error.message}")

    def ask(self, text: str) -> None:
        """Send one message and print the reply as it comes. Ctrl-C ends the reply only.

        Raises:
            FlmError: the server refused or failed; the message is not kept in the conversation.
        """
        self.messages.append({"role": "user", "content": text})
        reply = _Reply()
        try:
            with _interruptible():
                for piece in self.client.stream(self.messages, self.settings):
                    reply.show(piece)
        except FlmError:
            self.messages.pop()
            raise
        finally:
            reply.end()
        self.messages.append({"role": "assistant", "content": reply.content})

    def _handle(self, text: str) -> None:
        words = text.split(maxsplit=2)
        match words[0]:
            case "/help" | "/?":
                note(HELP)
            case "/clear":
                self.messages = [m for m in self.messages if m["role"] == "system"]
                note("The conversation is forgotten.")
            case "/set":
                self._set(words[1:])
            case word if word.startswith("/"):
                raise ConfigError(f"Unknown command {word}. Type /help for the list.")
            case _:
                self.ask(text)

    def _set(self, words: list[str]) -> None:
        if len(words) != 2 or words[0] not in {"sys-msg", *SETTINGS}:
            raise ConfigError(f"Use /set NAME VALUE with one of: sys-msg, {', '.join(SETTINGS)}.")
        name, value = words
        if name == "sys-msg":
            others = [m for m in self.messages if m["role"] != "system"]
            self.messages = [{"role": "system", "content": value}, *others]
            return
        request_field, read = SETTINGS[name]
        try:
            self.settings[request_field] = read(value)
        except ValueError as error:
            raise ConfigError(f"{value!r} is not a value for {name}.") from error


def _read_line(is_terminal: bool) -> str | None:
    """The next line; None at the end of the input."""
    try:
        line = input(">>> " if is_terminal else "")
    except EOFError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigError("The input is not UTF-8 text. Convert it first.") from error
    # In a C locale Python hides bytes it cannot read in surrogates, which no JSON can carry.
    return line.encode(errors="surrogateescape").decode(errors="replace")


@contextmanager
def _interruptible() -> Iterator[None]:
    """On a terminal Ctrl-C stops the reply and keeps the chat; elsewhere it ends the program."""
    try:
        yield
    except KeyboardInterrupt:
        if not sys.stdin.isatty():
            raise


@dataclass(slots=True)
class _Reply:
    """Prints a reply as it comes: the answer to stdout, the reasoning to stderr, where it mixes
    with nothing."""

    content: str = ""
    _channel: Channel | None = None

    def show(self, piece: Piece) -> None:
        """Print a piece."""
        if piece.channel != self._channel:
            self.end()
            self._channel = piece.channel
        if piece.channel == "content":
            self.content += piece.text
        print(piece.text, end="", flush=True, file=self._file())

    def end(self) -> None:
        """End the line, if one was begun."""
        if self._channel is not None:
            print(flush=True, file=self._file())
            self._channel = None

    def _file(self) -> TextIO:
        return sys.stdout if self._channel == "content" else sys.stderr
