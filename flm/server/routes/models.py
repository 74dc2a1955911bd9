"""``GET /v1/models`` and ``/v1/models/{id}``."""

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from flm.errors import ModelNotFoundError
from flm.server.context import ServerContext
from flm.server.errors import JSONReply
from flm.server.openapi import path_parameter, responses
from flm.server.plan import settings_dict
from flm.server.schemas.replies import ModelList, ModelReply

if TYPE_CHECKING:
    from flm.service import ModelInfo


def add_routes(app: FastAPI, ctx: ServerContext) -> None:
    """Add both paths."""

    async def list_models(_request: Request) -> Response:
        models = await ctx.service.models()
        return JSONReply({"object": "list", "data": [model_dict(info) for info in models]})

    async def show_model(request: Request) -> Response:
        wanted = request.path_params["model_id"]
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
        return JSONReply(model_dict(found))

    app.add_api_route(
        "/v1/models",
        list_models,
        methods=["GET"],
        summary="List the models",
        responses=responses(ModelList),
        response_model=None,
    )
    app.add_api_route(
        "/v1/models/{model_id:path}",
        show_model,
        methods=["GET"],
        summary="Show one model; its id may contain ':' and '/'",
        responses=responses(ModelReply, 404),
        openapi_extra=path_parameter("model_id"),
        response_model=None,
    )


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
