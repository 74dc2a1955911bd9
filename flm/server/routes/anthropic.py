"""Anthropic's ``/v1/messages``, its plan, and ``/v1/messages/count_tokens``."""

from fastapi import FastAPI, Request
from starlette.responses import Response

from flm.errors import ContextLengthError
from flm.server.admission import Call, decided, visible_of_prompt
from flm.server.anthropic_reply import MessagesFormat
from flm.server.body import read_body
from flm.server.context import ServerContext
from flm.server.endpoint import Endpoint, Handler, add_endpoint
from flm.server.errors import JSONReply
from flm.server.openapi import request_body, responses
from flm.server.schemas.anthropic import CountBody, MessagesBody
from flm.server.schemas.anthropic_replies import (
    CountReply,
    MessageErrorReply,
    MessageEvent,
    MessageReply,
)

_MESSAGES = Endpoint(
    "/v1/messages",
    "message",
    MessagesBody,
    MessagesFormat(),
    "msg_",
    MessageReply,
    MessageEvent,
    MessageErrorReply,
)


def add_routes(app: FastAPI, ctx: ServerContext) -> None:
    """Add the three paths."""
    add_endpoint(app, ctx, _MESSAGES)
    app.add_api_route(
        "/v1/messages/count_tokens",
        _count(ctx),
        methods=["POST"],
        summary="The number of tokens that a message's prompt has",
        responses=responses(CountReply, 400, 404, 413, 503, error=MessageErrorReply),
        openapi_extra=request_body(CountBody),
        response_model=None,
    )


def _count(ctx: ServerContext) -> Handler:
    async def count(request: Request) -> Response:
        read = await read_body(request, CountBody, ctx)
        call = Call(request.state.request_id, read.body, read.is_large)
        try:
            async with decided(ctx, call) as found:
                told = [entry.to_dict() for entry in visible_of_prompt(call, found)]
                shown = {"adaptations": told} if told else {}
                return JSONReply({"input_tokens": len(found.prepared.prompt_ids[0]), **shown})
        except ContextLengthError as error:
            # Who counts wants to know how much is too much.
            if error.prompt_len is None:
                raise
            return JSONReply({"input_tokens": error.prompt_len})

    return count
