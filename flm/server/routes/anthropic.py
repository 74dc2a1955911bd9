"""Anthropic's ``/v1/messages``, its plan, and ``/v1/messages/count_tokens``."""

from fastapi import FastAPI, Request
from starlette.responses import Response

from flm.server.admission import Call, decided, visible_of_prompt
from flm.server.anthropic_reply import MessagesFormat
from flm.server.body import read_body
from flm.server.context import ServerContext
from flm.server.endpoint import Endpoint, Handler, add_endpoint
from flm.server.errors import JSONReply
from flm.server.openapi import request_body, responses
from flm.server.records import extras_of
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
        async with decided(ctx, call) as found:
            told = visible_of_prompt(call, found)
            num_tokens = len(found.prepared.prompt_ids[0])
        return JSONReply({"input_tokens": num_tokens, **extras_of(told)})

    return count
