"""What surrounds every route: request ids, the last catch, the limit on bodies, CORS.

Plain ASGI, so that streams pass through untouched.
"""

import asyncio
import secrets
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flm.errors import BodyTooLargeError
from flm.server.errors import as_flm_error, error_response

REQUEST_ID_HEADERS = ("x-request-id", "request-id")
"""OpenAI's and Anthropic's name of it."""

# A refused body is read on and thrown away for a while, because a connection closed under a
# client that still sends loses the reply.
_DRAIN_S = 5.0


class RequestIds:
    """Gives every request an id and every reply the headers; a route may choose another id."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app with an id in the request's state."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["request_id"] = f"req_{secrets.token_hex(12)}"

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name in REQUEST_ID_HEADERS:
                    headers[name] = state["request_id"]
            await send(message)

        await self._app(scope, receive, send_with_id)


class LastCatch:
    """Whatever a route lets through becomes a 500 in the envelope, and the log has the rest."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app and answer for it if it fails."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_started = False

        async def send_noting(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        try:
            await self._app(scope, receive, send_noting)
        except ClientDisconnect:
            return
        except Exception as error:
            if is_started:
                raise
            reply = error_response(as_flm_error(error, scope["state"]["request_id"]), scope)
            await reply(scope, receive, send)


class BodyLimit:
    """Answers 413 to a body beyond ``max_bytes``: at once when its length is declared, else as
    soon as that much has come."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app behind a counting ``receive``."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        reading = _LimitedBody(receive, send, self._max_bytes)
        headers = Headers(scope=scope)
        declared = _declared_length(headers.getlist("content-length"))
        if declared is not None and declared > self._max_bytes:
            # A client that waits for "100 Continue" has sent nothing that could be drained.
            reading.is_exceeded = "expect" not in headers
            await error_response(reading.error(), scope)(scope, receive, reading.send)
            return
        await self._app(scope, reading.receive, reading.send)


class _LimitedBody:
    """The two channels of one request, with a count of what came in."""

    def __init__(self, receive: Receive, send: Send, max_bytes: int) -> None:
        self._receive = receive
        self._send = send
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self.is_exceeded = False

    def error(self) -> BodyTooLargeError:
        """What the client is told."""
        return BodyTooLargeError(f"The body is larger than {self._max_bytes} bytes.")

    async def receive(self) -> Message:
        """The next message; an error once there are too many bytes."""
        message = await self._receive()
        self._num_bytes += len(message.get("body", b""))
        if self._num_bytes > self._max_bytes:
            self.is_exceeded = True
            raise self.error()
        return message

    async def send(self, message: Message) -> None:
        """Pass a message on; after a refused body drain what is still coming, then end."""
        if not self.is_exceeded:
            await self._send(message)
        elif message["type"] == "http.response.start":
            MutableHeaders(scope=message)["connection"] = "close"
            await self._send(message)
        else:
            await self._send({**message, "more_body": True})
            await self._drain()
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(_DRAIN_S):
                more = True
                while more:
                    more = (await self._receive()).get("more_body", False)
        except TimeoutError:
            return


def _declared_length(values: Iterable[str]) -> int | None:
    # Beyond 20 digits the number itself does not matter, only that it is too large.
    lengths = [int(value[:20]) for value in values if value.isascii() and value.isdigit()]
    return max(lengths) if lengths else None


def allow_any_origin(app: ASGIApp) -> CORSMiddleware:
    """Any page may call; a preflight is answered with the headers it asked for."""
    return CORSMiddleware(
        app,
        allow_origins=["*"],
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=[*REQUEST_ID_HEADERS, "retry-after"],
    )
