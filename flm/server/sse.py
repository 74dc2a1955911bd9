"""A stream over raw ASGI: frames, something to keep it alive, one error, the end."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.types import Send

from flm.server.context import ServerContext
from flm.server.framing import Framing


class ClientGoneError(Exception):
    """The client takes nothing any more."""


class EventStream:
    """One open stream. Frames never interleave."""

    def __init__(self, send: Send, ctx: ServerContext, framing: Framing) -> None:
        self._send = send
        self._framing = framing
        self._keepalive_s = ctx.keepalive_s
        self._timeout_s = ctx.send_timeout_s
        self._lock = asyncio.Lock()
        self._last_sent = 0.0

    def frames(self, chunks: Iterable[dict[str, Any]]) -> bytes:
        """The bytes of ``chunks``, one after another."""
        return b"".join(map(self._framing.frame, chunks))

    async def write(self, data: bytes) -> None:
        """Send what ``frames`` made; nothing is sent for nothing."""
        if data:
            await self._write(data)

    async def finish(self) -> None:
        """Tell the client that the reply is whole, where the framing has a word for it."""
        await self.write(self._framing.end)

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
        headers = [
            (b"content-type", self._framing.media_type.encode()),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        self._last_sent = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """End the body."""
        await self._write(b"", more=False)

    async def keep_alive(self) -> None:
        """Send something into every silence, until cancelled or the client is gone."""
        if not self._framing.keep_alive:
            return
        loop = asyncio.get_running_loop()
        with suppress(ClientGoneError):
            while True:
                await asyncio.sleep(self._last_sent + self._keepalive_s - loop.time())
                if loop.time() - self._last_sent >= self._keepalive_s:
                    await self.write(self._framing.keep_alive)


@asynccontextmanager
async def event_stream(
    send: Send, ctx: ServerContext, framing: Framing
) -> AsyncIterator[EventStream]:
    """An open stream: headers at once, kept alive while it is silent, closed when all is sent."""
    stream = EventStream(send, ctx, framing)
    await stream.open()
    keeper = asyncio.create_task(stream.keep_alive())
    try:
        yield stream
    finally:
        keeper.cancel()
        await asyncio.wait({keeper})
    await stream.close()
