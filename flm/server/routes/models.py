"""``GET /v1/models`` and ``/v1/models/{id}``."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from flm.errors import ModelNotFoundError
from flm.server.context import ServerContext
from flm.server.envelopes import ANTHROPIC_HEADER
from flm.server.errors import JSONReply
from flm.server.openapi import path_parameter, responses
from flm.server.plan import settings_dict
from flm.server.schemas.anthropic_replies import AnthropicModelList, AnthropicModelReply
from flm.server.schemas.replies import ModelList, ModelReply

if TYPE_CHECKING:
    from flm.service import ModelInfo


def add_routes(app: FastAPI, ctx: ServerContext) -> None:
    """Add both paths."""

    async def list_models(request: Request) -> Response:
        models = await ctx.service.models()
        if _is_anthropic(request):
            return JSONReply(anthropic_list(models))
        return JSONReply({"object": "list", "data": [model_dict(info) for info in models]})

    async def show_model(request: Request) -> Response:
        show = anthropic_dict if _is_anthropic(request) else model_dict
        return JSONReply(show(await found_model(ctx, request.path_params["model_id"])))

    app.add_api_route(
        "/v1/models",
        list_models,
        methods=["GET"],
        summary="List the models; in Anthropic's form with the header anthropic-version",
        responses=responses(ModelList | AnthropicModelList),
        response_model=None,
    )
    app.add_api_route(
        "/v1/models/{model_id:path}",
        show_model,
        methods=["GET"],
        summary="Show one model; its id may contain ':' and '/'",
        responses=responses(ModelReply | AnthropicModelReply, 404),
        openapi_extra=path_parameter("model_id"),
        response_model=None,
    )


def _is_anthropic(request: Request) -> bool:
    """True when a client of Anthropic's asks: both APIs have these paths."""
    return ANTHROPIC_HEADER in request.headers


async def found_model(ctx: ServerContext, wanted: str) -> "ModelInfo":
    """The model that a request may name so.

    Raises:
        ModelNotFoundError: there is none, or its files cannot be read.
    """
    models = await ctx.service.models()
    found = next((info for info in models if info.id == wanted), None)
    if found is None:
        # Whatever a request may name has an answer here: a tag without its size, for one.
        model_id = await ctx.service.resolve(wanted)
        found = next((info for info in models if info.id == model_id), None)
    if found is None:
        raise ModelNotFoundError(
            f"The files of {wanted} cannot be read; run: flm check {wanted}", param="model"
        )
    return found


def model_dict(info: "ModelInfo") -> dict[str, Any]:
    """OpenAI's model object with the server's own fields."""
    return {
        "id": info.id,
        "object": "model",
        "created": info.created,
        "owned_by": info.owned_by,
        "context_length": info.context_len,
        "max_model_len": info.context_len,
        "family": info.family,
        "size_bytes": info.size_bytes,
        "quantization": info.quantization,
        "loaded": info.loaded,
        "dtype": info.dtype,
        "kv_dtype": info.kv_dtype,
        "device": info.device,
        "exact": info.exact,
        "vocab_size": info.vocab_size,
        "reasons": info.reasons,
        "defaults": settings_dict(info.defaults),
    }


def anthropic_list(models: Sequence["ModelInfo"]) -> dict[str, Any]:
    """Every model on one page of Anthropic's."""
    return {
        "data": [anthropic_dict(info) for info in models],
        "has_more": False,
        "first_id": models[0].id if models else None,
        "last_id": models[-1].id if models else None,
    }


def anthropic_dict(info: "ModelInfo") -> dict[str, Any]:
    """Anthropic's model object. A reply may be as long as the context has room."""
    created = datetime.fromtimestamp(info.created, UTC)
    return {
        "type": "model",
        "id": info.id,
        "display_name": info.id,
        "created_at": created.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "max_input_tokens": info.context_len,
        "max_tokens": info.context_len,
        "capabilities": None,
        "lifecycle": "active",
        "line": None,
        "deprecated_at": None,
        "retires_at": None,
    }
