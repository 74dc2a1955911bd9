"""``POST /v1/chat/completions``, ``/v1/completions`` and the plan of each, and ``/completion``."""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.responses import Response

from flm.server.admission import Call, decided, visible
from flm.server.body import read_body
from flm.server.chat_reply import ChatDialect
from flm.server.completion_reply import CompletionDialect
from flm.server.context import ServerContext
from flm.server.errors import JSONReply
from flm.server.exchange import GenerationResponse
from flm.server.formats import OpenAIFormat, ReplyFormat
from flm.server.llama_reply import LlamaFormat
from flm.server.openapi import request_body, responses
from flm.server.plan import plan_dict
from flm.server.schemas.chat import ChatBody
from flm.server.schemas.common import CommonBody
from flm.server.schemas.completions import CompletionBody
from flm.server.schemas.llama import LlamaBody
from flm.server.schemas.llama_replies import LlamaChunk, LlamaReply
from flm.server.schemas.replies import ChatChunk, ChatReply, CompletionReply, PlanReply

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One way to ask for text. ``reply`` and ``chunk`` are the schemas of what comes back."""

    path: str
    name: str
    schema: type[CommonBody]
    reply_format: ReplyFormat
    id_prefix: str
    reply: Any
    chunk: type[BaseModel]
    has_plan: bool = True


_LLAMA_REPLY = LlamaReply | list[LlamaReply | dict[str, Any]] | dict[str, Any]
"""With ``response_fields`` a reply has what was asked for."""

ENDPOINTS = (
    Endpoint(
        "/v1/chat/completions",
        "chat completion",
        ChatBody,
        OpenAIFormat(ChatDialect()),
        "chatcmpl-",
        ChatReply,
        ChatChunk,
    ),
    Endpoint(
        "/v1/completions",
        "completion",
        CompletionBody,
        OpenAIFormat(CompletionDialect()),
        "cmpl-",
        CompletionReply,
        CompletionReply,
    ),
    *(
        Endpoint(
            path,
            "completion in llama-server's form",
            LlamaBody,
            LlamaFormat(),
            "cmpl-",
            _LLAMA_REPLY,
            LlamaChunk,
            has_plan=False,
        )
        for path in ("/completion", "/completions")
    ),
)


def add_routes(app: FastAPI, ctx: ServerContext) -> None:
    """Add the endpoints and their plans."""
    for endpoint in ENDPOINTS:
        app.add_api_route(
            endpoint.path,
            _generate(ctx, endpoint),
            methods=["POST"],
            summary=f"Create a {endpoint.name}",
            responses=responses(endpoint.reply, 400, 404, 413, 503, stream=endpoint.chunk),
            openapi_extra=request_body(endpoint.schema),
            response_model=None,
        )
        if not endpoint.has_plan:
            continue
        app.add_api_route(
            f"{endpoint.path}/plan",
            _plan(ctx, endpoint),
            methods=["POST"],
            summary=f"Preview a {endpoint.name}: what would be done, without doing it",
            responses=responses(PlanReply, 400, 404, 413, 503),
            openapi_extra=request_body(endpoint.schema),
            response_model=None,
        )


def _generate(ctx: ServerContext, endpoint: Endpoint) -> Handler:
    async def generate(request: Request) -> Response:
        request_id = endpoint.id_prefix + secrets.token_hex(12)
        request.state.request_id = request_id
        read = await read_body(request, endpoint.schema, ctx)
        call = Call(request_id, read.body, read.is_large)
        return GenerationResponse(ctx, call, endpoint.reply_format)

    return generate


def _plan(ctx: ServerContext, endpoint: Endpoint) -> Handler:
    async def plan(request: Request) -> Response:
        read = await read_body(request, endpoint.schema, ctx)
        call = Call(request.state.request_id, read.body, read.is_large)
        async with decided(ctx, call) as found:
            snapshot = found.model.store.peek(found.prepared.request.sent)
            adaptations = visible(call, found, snapshot)
            return JSONReply(await plan_dict(ctx, found, snapshot, adaptations))

    return plan
