"""One endpoint that asks for text, whatever its dialect, and the plan of it."""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.responses import Response

from flm.server.admission import Call, decided, visible
from flm.server.body import read_body
from flm.server.context import ServerContext
from flm.server.errors import JSONReply
from flm.server.exchange import GenerationResponse
from flm.server.formats import ReplyFormat
from flm.server.openapi import request_body, responses
from flm.server.plan import plan_dict
from flm.server.schemas.generation import GenerationBody
from flm.server.schemas.replies import ErrorReply, PlanReply

Handler = Callable[[Request], Awaitable[Response]]
Complete = Callable[[Any], GenerationBody]
"""Puts into a body what it only names, such as an earlier conversation."""

Shortcut = Callable[[ServerContext, Call], Awaitable[Response | None]]
"""The reply to a request that asks for no text; None for any other request."""


def _as_it_is(body: GenerationBody) -> GenerationBody:
    return body


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One way to ask for text. ``reply``, ``chunk`` and ``error`` are the schemas of what comes
    back."""

    path: str
    name: str
    schema: type[GenerationBody]
    reply_format: ReplyFormat
    id_prefix: str
    reply: Any
    chunk: type[BaseModel]
    error: type[BaseModel] = ErrorReply
    has_plan: bool = True
    complete: Complete = _as_it_is
    shortcut: Shortcut | None = None


def add_endpoint(app: FastAPI, ctx: ServerContext, endpoint: Endpoint) -> None:
    """Add the endpoint and its plan."""
    app.add_api_route(
        endpoint.path,
        _generate(ctx, endpoint),
        methods=["POST"],
        summary=f"Create a {endpoint.name}",
        responses=responses(
            endpoint.reply,
            *(400, 404, 413, 499, 503),
            stream=endpoint.chunk,
            framing=endpoint.reply_format.framing,
            error=endpoint.error,
        ),
        openapi_extra=request_body(endpoint.schema),
        response_model=None,
    )
    if not endpoint.has_plan:
        return
    app.add_api_route(
        f"{endpoint.path}/plan",
        _plan(ctx, endpoint),
        methods=["POST"],
        summary=f"Preview a {endpoint.name}: what would be done, without doing it",
        responses=responses(PlanReply, 400, 404, 413, 503, error=endpoint.error),
        openapi_extra=request_body(endpoint.schema),
        response_model=None,
    )


async def read_call(
    request: Request, ctx: ServerContext, endpoint: Endpoint, request_id: str
) -> Call:
    """The request, read and complete.

    Raises:
        FlmError: it cannot be read, or what it names is not there.
    """
    read = await read_body(request, endpoint.schema, ctx)
    return Call(request_id, endpoint.complete(read.body), read.is_large)


def _generate(ctx: ServerContext, endpoint: Endpoint) -> Handler:
    async def generate(request: Request) -> Response:
        request_id = endpoint.id_prefix + secrets.token_hex(12)
        request.state.request_id = request_id
        call = await read_call(request, ctx, endpoint, request_id)
        reply = None if endpoint.shortcut is None else await endpoint.shortcut(ctx, call)
        if reply is not None:
            return reply
        return GenerationResponse(ctx, call, endpoint.reply_format)

    return generate


def _plan(ctx: ServerContext, endpoint: Endpoint) -> Handler:
    async def plan(request: Request) -> Response:
        call = await read_call(request, ctx, endpoint, request.state.request_id)
        async with decided(ctx, call) as found:
            snapshot = found.model.store.peek(found.prepared.request.sent)
            adaptations = visible(call, found, snapshot)
            return JSONReply(await plan_dict(ctx, found, snapshot, adaptations))

    return plan
