"""The blocking router."""

import threading
from collections.abc import Callable, Iterator
from time import sleep
from typing import TYPE_CHECKING, TypeVar

from flm.router.call import StreamReader
from flm.router.client import BaseRouter, Prepared
from flm.router.config import RouterConfig
from flm.router.errors import RouterError
from flm.router.http import MAX_ERROR_BYTES, client_options, is_plain_json, is_success, translated
from flm.router.request import Request
from flm.router.response import Response, StreamEnd, StreamEvent, TextDelta

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


class ResponseStream:
    """The events of one reply: one start, deltas, one end. The request goes out with the first.

    Leaving it early closes the connection; use ``with``, or ``close()``.
    """

    def __init__(self, reader: StreamReader, events: Iterator[StreamEvent]) -> None:
        self._reader = reader
        self._events = events

    def __iter__(self) -> Iterator[StreamEvent]:
        return self

    def __next__(self) -> StreamEvent:
        return next(self._events)

    def __enter__(self) -> "ResponseStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def text(self) -> Iterator[str]:
        """Only the text of the answer, piece by piece."""
        return (event.text for event in self if isinstance(event, TextDelta) and event.text)

    @property
    def response(self) -> Response:
        """The whole reply; what has not been read yet is read now.

        Raises:
            StreamAssemblyError: the stream was closed or broke before its end.
        """
        for _ in self._events:
            pass
        if not self._reader.is_done:
            self._reader.give_up()
        return self._reader.response()

    def close(self) -> None:
        """Close the connection."""
        close = getattr(self._events, "close", None)
        if close is not None:
            close()


class LMRouter(BaseRouter):
    """One way to ask every provider. Threads may share it; it keeps its connections.

    ``complete`` and ``stream`` raise what stands in ``flm.router.errors``.
    """

    def __init__(self, config: RouterConfig | None = None) -> None:
        super().__init__(config)
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None

    def complete(self, request: Request) -> Response:
        """Ask, and wait for the whole answer."""
        prepared = self._prepare(request, stream=False)
        if prepared.call.streams:
            return self._streamed(prepared).response
        return self._retrying(lambda: self._whole(prepared))

    def stream(self, request: Request) -> ResponseStream:
        """Ask, and get the answer as it is written. What is refused is refused here."""
        return self._streamed(self._prepare(request, stream=True))

    def close(self) -> None:
        """Close the connections; the router is of no more use."""
        with self._lock:
            self._is_closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def __enter__(self) -> "LMRouter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the network ---

    def _connected(self) -> "httpx.Client":
        import httpx

        with self._lock:
            if self._client is None:
                self._client = httpx.Client(**client_options(self._config))
            return self._client

    def _whole(self, prepared: Prepared) -> Response:
        call = prepared.call
        with translated(call):
            reply = self._connected().post(
                call.url, content=call.payload(), headers=dict(prepared.headers)
            )
        if not is_success(reply):
            raise call.failed(reply.status_code, reply.headers, reply.content)
        return call.whole(reply.status_code, reply.content)

    def _streamed(self, prepared: Prepared) -> ResponseStream:
        reader = StreamReader(prepared.call)
        return ResponseStream(reader, self._events(prepared, reader))

    def _events(self, prepared: Prepared, reader: StreamReader) -> Iterator[StreamEvent]:
        reply = self._retrying(lambda: self._open(prepared))
        end: StreamEvent | None = None
        try:
            with translated(prepared.call):
                for event in _read(reply, reader):
                    if isinstance(event, StreamEnd):
                        end = event
                        break
                    yield event
        finally:
            reply.close()
        # The connection is closed before the caller learns of the end.
        if end is not None:
            yield end

    def _open(self, prepared: Prepared) -> "httpx.Response":
        call = prepared.call
        with translated(call):
            client = self._connected()
            request = client.build_request(
                "POST", call.url, content=call.payload(), headers=dict(prepared.headers)
            )
            reply = client.send(request, stream=True)
            if is_success(reply):
                return reply
            try:
                content = _some(reply)
            finally:
                reply.close()
        raise call.failed(reply.status_code, reply.headers, content)

    def _retrying(self, act: Callable[[], T]) -> T:
        attempt = 0
        while True:
            try:
                return act()
            except RouterError as error:
                wait = self._wait_before_retry(error, attempt)
                if wait is None:
                    raise
            sleep(wait)
            attempt += 1


def _read(reply: "httpx.Response", reader: StreamReader) -> Iterator[StreamEvent]:
    if is_plain_json(reply):
        yield from reader.whole(reply.read())
        return
    for chunk in reply.iter_bytes():
        yield from reader.feed(chunk)
        if reader.is_done:
            return
    yield from reader.finish()


def _some(reply: "httpx.Response") -> bytes:
    content = b""
    for chunk in reply.iter_bytes():
        content += chunk
        if len(content) > MAX_ERROR_BYTES:
            break
    return content
