"""The asynchronous router."""

from asyncio import sleep
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from flm.router.call import StreamReader
from flm.router.client import BaseRouter, Prepared
from flm.router.config import RouterConfig
from flm.router.errors import RouterError
from flm.router.http import MAX_ERROR_BYTES, client_options, is_plain_json, is_success, translated
from flm.router.request import Request
from flm.router.response import Response, StreamEnd, StreamEvent, TextDelta

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx

T = TypeVar("T")


class AsyncResponseStream:
    """The events of one reply: one start, deltas, one end. The request goes out with the first.

    Leaving it early closes the connection; use ``async with``, or ``aclose()``.
    """

    def __init__(self, reader: StreamReader, events: "AsyncGenerator[StreamEvent, None]") -> None:
        self._reader = reader
        self._events = events

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self

    async def __anext__(self) -> StreamEvent:
        return await anext(self._events)

    async def __aenter__(self) -> "AsyncResponseStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def text(self) -> AsyncIterator[str]:
        """Only the text of the answer, piece by piece."""
        async for event in self:
            if isinstance(event, TextDelta) and event.text:
                yield event.text

    async def response(self) -> Response:
        """The whole reply; what has not been read yet is read now.

        Raises:
            StreamAssemblyError: the stream was closed or broke before its end.
        """
        async for _ in self._events:
            pass
        if not self._reader.is_done:
            self._reader.give_up()
        return self._reader.response()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._events.aclose()


class AsyncLMRouter(BaseRouter):
    """As ``LMRouter``, for one event loop. ``resolve`` and ``plan`` do not wait."""

    def __init__(self, config: RouterConfig | None = None) -> None:
        super().__init__(config)
        self._client: httpx.AsyncClient | None = None

    async def complete(self, request: Request) -> Response:
        """Ask, and wait for the whole answer."""
        prepared = self._prepare(request, stream=False)
        if prepared.call.streams:
            async with self._streamed(prepared) as stream:
                return await stream.response()
        return await self._retrying(lambda: self._whole(prepared))

    def stream(self, request: Request) -> AsyncResponseStream:
        """Ask, and get the answer as it is written. What is refused is refused here."""
        return self._streamed(self._prepare(request, stream=True))

    async def aclose(self) -> None:
        """Close the connections; the router is of no more use."""
        self._is_closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def __aenter__(self) -> "AsyncLMRouter":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # --- the network ---

    def _connected(self) -> "httpx.AsyncClient":
        import httpx

        if self._client is None:
            self._client = httpx.AsyncClient(**client_options(self._config))
        return self._client

    async def _whole(self, prepared: Prepared) -> Response:
        call = prepared.call
        with translated(call):
            reply = await self._connected().post(
                call.url, content=call.payload(), headers=dict(prepared.headers)
            )
        if not is_success(reply):
            raise call.failed(reply.status_code, reply.headers, reply.content)
        return call.whole(reply.status_code, reply.content)

    def _streamed(self, prepared: Prepared) -> AsyncResponseStream:
        reader = StreamReader(prepared.call)
        return AsyncResponseStream(reader, self._events(prepared, reader))

    async def _events(
        self, prepared: Prepared, reader: StreamReader
    ) -> "AsyncGenerator[StreamEvent, None]":
        reply = await self._retrying(lambda: self._open(prepared))
        end: StreamEvent | None = None
        try:
            with translated(prepared.call):
                async with aclosing(_read(reply, reader)) as events:
                    async for event in events:
                        if isinstance(event, StreamEnd):
                            end = event
                            break
                        yield event
        finally:
            await reply.aclose()
        # The connection is closed before the caller learns of the end.
        if end is not None:
            yield end

    async def _open(self, prepared: Prepared) -> "httpx.Response":
        call = prepared.call
        with translated(call):
            client = self._connected()
            request = client.build_request(
                "POST", call.url, content=call.payload(), headers=dict(prepared.headers)
            )
            reply = await client.send(request, stream=True)
            if is_success(reply):
                return reply
            try:
                content = await _some(reply)
            finally:
                await reply.aclose()
        raise call.failed(reply.status_code, reply.headers, content)

    async def _retrying(self, act: Callable[[], Awaitable[T]]) -> T:
        attempt = 0
        while True:
            try:
                return await act()
            except RouterError as error:
                wait = self._wait_before_retry(error, attempt)
                if wait is None:
                    raise
            await sleep(wait)
            attempt += 1


async def _read(
    reply: "httpx.Response", reader: StreamReader
) -> "AsyncGenerator[StreamEvent, None]":
    if is_plain_json(reply):
        for event in reader.whole(await reply.aread()):
            yield event
        return
    async for chunk in reply.aiter_bytes():
        for event in reader.feed(chunk):
            yield event
        if reader.is_done:
            return
    for event in reader.finish():
        yield event


async def _some(reply: "httpx.Response") -> bytes:
    content = b""
    async for chunk in reply.aiter_bytes():
        content += chunk
        if len(content) > MAX_ERROR_BYTES:
            break
    return content
