"""Server-sent events over raw ASGI: frames, keep-alive comments, one error, the end."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.types import Send

from flm.server.context import ServerContext
from flm.server.errors import dump_json

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_COMMENT = b": keep-alive\n\n"


class ClientGoneError(Exception):
    """The client takes nothing any more."""


def frames(chunks: Iterable[dict[str, Any]]) -> bytes:
    """Each chunk as one event."""
    return b"".join(b"data: " + dump_json(chunk) + b"\n\n" for chunk in chunks)


class EventStream:
    """One open stream. Frames never interleave."""

    def __init__(self, send: Send, ctx: ServerContext) -> None:
        self._send = send
        self._keepalive_s = ctx.keepalive_s
        self._timeout_s = ctx.send_timeout_s
        self._lock = asyncio.Lock()
        self._last_sent = 0.0

    async def write(self, data: bytes) -> None:
        """Send events (see ``frames``); nothing is sent for none."""
        if data:
            await self._write(data)

    async def finish(self) -> None:
        """Tell the client that the reply is whole."""
        await self._write(b"data: [DONE]\n\n")

    async def _write(self, data: bytes, *, more: bool = True) -> None:
        async with self._lock:
            message = {"type": "http.response.body", "body": data, "more_body": more}
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._send(message)
            except (TimeoutError, OSError) as error:
                raise ClientGoneError from error
            self._last_sent = asyncio.get_running_loop().time()

    async def open(self) -> None:
        """Send the headers."""
        await self._send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        self._last_sent = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """End the body."""
        await self._write(b"", more=False)

    async def keep_alive(self) -> None:
        """Send comments into every silence, until cancelled or the client is gone."""
        loop = asyncio.get_running_loop()
        with suppress(ClientGoneError):
            while True:
                await asyncio.sleep(self._last_sent + self._keepalive_s - loop.time())
                if loop.time() - self._last_sent >= self._keepalive_s:
                    await self._write(_COMMENT)


@asynccontextmanager
async def event_stream(send: Send, ctx: ServerContext) -> AsyncIterator[EventStream]:
    """An open stream: headers at once, comments while it is silent, closed when all is sent."""
    stream = EventStream(send, ctx)
    await stream.open()
    keeper = asyncio.create_task(stream.keep_alive())
    try:
        yield stream
    finally:
        keeper.cancel()
        await asyncio.wait({keeper})
    await stream.close()
