"""One generation over HTTP, from admission to the last byte, ended when the client leaves."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from flm.log import logger
from flm.server.admission import Admitted, Call, admitted
from flm.server.context import ServerContext
from flm.server.errors import JSONReply, as_flm_error, error_response
from flm.server.responses import ChunkedReply, Dialect, FullReply, ReplyHead, now
from flm.server.sse import ClientGoneError, event_stream


class GenerationResponse(Response):
    """Runs the request while it answers it: the model stays leased exactly as long."""

    def __init__(self, ctx: ServerContext, call: Call, dialect: Dialect) -> None:
        super().__init__()
        self._ctx = ctx
        self._call = call
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or stop silently when the client has gone."""
        await until_disconnect(receive, self._answer(scope, receive, send), self._call.id)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply: Response | None = None
        try:
            async with admitted(self._ctx, self._call) as admission:
                if self._call.body.stream:
                    await self._stream(admission, send)
                else:
                    reply = await self._whole(admission)
        except ClientGoneError:
            logger.info("%s: the client takes nothing any more", self._call.id)
        except Exception as error:  # noqa: BLE001 - whatever it was, the client gets an envelope
            reply = error_response(as_flm_error(error, self._call.id))
        if reply is not None:
            await reply(scope, receive, send)

    async def _whole(self, admission: Admitted) -> Response:
        builder = FullReply(self._head(admission), self._dialect)
        async for event in admission.generation.events():
            builder.feed(event)
        return JSONReply(builder.flush())

    async def _stream(self, admission: Admitted, send: Send) -> None:
        builder = ChunkedReply(self._head(admission), self._dialect)
        async with event_stream(send, self._ctx) as stream:
            try:
                async for event in admission.generation.events():
                    await stream.send(builder.feed(event))
            except ClientGoneError:
                raise
            except Exception as error:  # noqa: BLE001 - the status is sent; an event must tell it
                await stream.send([as_flm_error(error, self._call.id).to_dict()])
            else:
                await stream.finish()

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
            with_token_ids=body.return_token_ids is True,
            with_usage=body.include_usage,
        )


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
