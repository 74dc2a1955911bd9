"""Ollama's endpoints: replies, the models, and what is done on the command line instead."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from starlette.responses import Response

from flm.errors import NotSupportedError
from flm.server.body import read_body
from flm.server.context import ServerContext
from flm.server.endpoint import Endpoint, add_endpoint
from flm.server.errors import JSONReply
from flm.server.ollama_load import loads
from flm.server.ollama_models import loaded_dict, show_dict, tag_dict
from flm.server.ollama_reply import ChatShape, GenerateShape, OllamaFormat
from flm.server.openapi import request_body, responses
from flm.server.records import unknown_extras
from flm.server.routes.models import found_model
from flm.server.schemas.ollama import OllamaChatBody, OllamaGenerateBody
from flm.server.schemas.ollama_replies import (
    OllamaChatReply,
    OllamaErrorReply,
    OllamaGenerateReply,
    PsReply,
    ShowReply,
    TagsReply,
)
from flm.server.schemas.ollama_show import ShowBody

Handler = Callable[[Request], Awaitable[Response]]

ENDPOINTS = (
    Endpoint(
        "/api/chat",
        "chat in Ollama's form",
        OllamaChatBody,
        OllamaFormat(ChatShape()),
        "chatcmpl-",
        OllamaChatReply,
        OllamaChatReply,
        error=OllamaErrorReply,
        shortcut=loads(ChatShape()),
    ),
    Endpoint(
        "/api/generate",
        "reply to a prompt in Ollama's form",
        OllamaGenerateBody,
        OllamaFormat(GenerateShape()),
        "cmpl-",
        OllamaGenerateReply,
        OllamaGenerateReply,
        error=OllamaErrorReply,
        shortcut=loads(GenerateShape()),
    ),
)
INSTEAD = (
    ("POST", "/api/embed", "The models here generate text; they give no embeddings."),
    ("POST", "/api/embeddings", "The models here generate text; they give no embeddings."),
    ("POST", "/api/pull", "Models are installed on the server's machine; run: flm pull TAG"),
    ("DELETE", "/api/delete", "Models are removed on the server's machine; run: flm remove TAG"),
    (
        "POST",
        "/api/copy",
        "A model is not copied to have another name; start the server with: flm serve TAG "
        "--served-name NAME",
    ),
    (
        "POST",
        "/api/create",
        "Models are not made here; a GGUF file or a Hugging Face folder is served with: flm serve "
        "PATH",
    ),
    ("POST", "/api/push", "Models are not uploaded from here."),
)
"""What Ollama does and this server does not, and what to do instead."""


def add_routes(app: FastAPI, ctx: ServerContext) -> None:
    """Add them."""
    for endpoint in ENDPOINTS:
        add_endpoint(app, ctx, endpoint)
    for path, handler, summary, reply in (
        ("/api/tags", _tags(ctx), "The installed models, in Ollama's words", TagsReply),
        ("/api/ps", _ps(ctx), "The loaded model, in Ollama's words", PsReply),
    ):
        app.add_api_route(
            path,
            handler,
            methods=["GET"],
            summary=summary,
            responses=responses(reply, error=OllamaErrorReply),
            response_model=None,
        )
    app.add_api_route("/api/tags", _tags(ctx), methods=["HEAD"], include_in_schema=False)
    app.add_api_route(
        "/api/show",
        _show(ctx),
        methods=["POST"],
        summary="One model, in Ollama's words",
        responses=responses(ShowReply, 400, 404, 413, 503, error=OllamaErrorReply),
        openapi_extra=request_body(ShowBody),
        response_model=None,
    )
    for method, path, message in INSTEAD:
        app.add_api_route(path, _refuse(message), methods=[method], include_in_schema=False)


def _tags(ctx: ServerContext) -> Handler:
    async def tags(_request: Request) -> Response:
        return JSONReply({"models": [tag_dict(info) for info in await ctx.service.models()]})

    return tags


def _ps(ctx: ServerContext) -> Handler:
    async def loaded(_request: Request) -> Response:
        current = ctx.service.current
        models = [] if current is None else [loaded_dict(current.info)]
        return JSONReply({"models": models})

    return loaded


def _show(ctx: ServerContext) -> Handler:
    async def show(request: Request) -> Response:
        body = (await read_body(request, ShowBody, ctx)).body
        extras = unknown_extras(body, ctx.mode(body.adaptations))
        info = await found_model(ctx, body.wanted)
        current = ctx.service.current if info.loaded else None
        return JSONReply({**show_dict(info, current), **extras})

    return show


def _refuse(message: str) -> Handler:
    async def refuse(_request: Request) -> Response:
        raise NotSupportedError(message)

    return refuse
