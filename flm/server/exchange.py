"""One generation over HTTP, from admission to the last byte, ended when the client leaves."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from anyio import to_thread
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from flm.log import logger
from flm.server.admission import Admitted, Call, admitted
from flm.server.context import ServerContext
from flm.server.errors import JSONReply, as_flm_error, error_response
from flm.server.formats import Chunks, ReplyFormat
from flm.server.responses import ReplyHead, now
from flm.server.sse import ClientGoneError, EventStream, event_stream
from flm.types import Event, PromptEcho, RequestDone

T = TypeVar("T")
# Writing out fewer tokens than this costs less than a thread.
_INLINE_TOKENS = 1024


class GenerationResponse(Response):
    """Runs the request while it answers it: the model stays leased exactly as long."""

    def __init__(self, ctx: ServerContext, call: Call, reply_format: ReplyFormat) -> None:
        super().__init__()
        self._ctx = ctx
        self._call = call
        self._format = reply_format

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or stop silently when the client has gone."""
        await until_disconnect(receive, self._answer(scope, receive, send), self._call.id)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply: Response | None = None
        try:
            async with admitted(self._ctx, self._call) as admission:
                if self._call.body.streams:
                    await self._stream(admission, send)
                else:
                    reply = await self._whole(admission)
        except ClientGoneError:
            logger.info("%s: the client takes nothing any more", self._call.id)
        except Exception as error:  # noqa: BLE001 - whatever it was, the client gets an envelope
            reply = error_response(as_flm_error(error, self._call.id), scope)
        if reply is not None:
            await reply(scope, receive, send)

    async def _whole(self, admission: Admitted) -> Response:
        builder = self._format.whole(self._head(admission), admission)
        async for event in admission.generation.events():
            builder.feed(event)
        return await self._aside(builder.num_entries, lambda: JSONReply(builder.flush()))

    async def _stream(self, admission: Admitted, send: Send) -> None:
        builder = self._format.chunks(self._head(admission), admission)
        async with event_stream(send, self._ctx, self._format.framing) as stream:
            try:
                await stream.write(stream.frames(builder.open()))
                async for event in admission.generation.events():
                    work = partial(_written, stream, builder, event)
                    await stream.write(await self._aside(_size(event), work))
            except ClientGoneError:
                raise
            except Exception as error:  # noqa: BLE001 - the status is sent; an event must tell it
                chunks = builder.fail(as_flm_error(error, self._call.id))
                await stream.write(stream.frames(chunks))
            else:
                await stream.finish()

    async def _aside(self, num_tokens: int, work: Callable[[], T]) -> T:
        """The result of ``work``, done in a thread if it writes out many tokens."""
        if num_tokens <= _INLINE_TOKENS:
            return work()
        return await to_thread.run_sync(work, limiter=self._ctx.limiter)

    def _head(self, admission: Admitted) -> ReplyHead:
        body, prompt_ids = self._call.body, admission.generation.prompt_ids
        request = admission.decided.prepared.request
        return ReplyHead(
            id=self._call.id,
            model=request.model,
            created=now(),
            prompt_ids=prompt_ids,
            num_choices=len(prompt_ids) * request.n,
            adaptations=admission.adaptations,
            with_logprobs=request.top_logprobs is not None,
            with_token_ids=body.with_token_ids,
            with_usage=body.include_usage,
            with_timings=body.with_timings,
            with_token_timings=request.time_tokens,
        )


def _written(stream: EventStream, builder: Chunks, event: Event) -> bytes:
    return stream.frames(builder.feed(event))


def _size(event: Event) -> int:
    """About how many tokens the chunks of an event write out one by one."""
    if isinstance(event, PromptEcho):
        return len(event.token_ids)
    return event.usage.prompt_tokens if isinstance(event, RequestDone) else 0


async def until_disconnect(
    receive: Receive, work: Coroutine[Any, Any, None], request_id: str
) -> None:
    """Run ``work``; cancel it as soon as the client has gone. Its failures are raised."""
    task = asyncio.create_task(work)
    watcher = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            logger.info("%s: the client has gone; its request is cancelled", request_id)
    finally:
        watcher.cancel()
        task.cancel()
        await asyncio.wait({task, watcher})
    if not task.cancelled():
        task.result()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
