"""``GET`` and ``DELETE /v1/settings``: the sticky store, seen and reset."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from flm.server.context import ServerContext
from flm.server.errors import JSONReply
from flm.server.openapi import query_parameter, responses
from flm.server.schemas.replies import SettingsReply
from flm.sticky import SettingEntry, StickyStore

if TYPE_CHECKING:
    from flm.service import ModelInfo


def add_routes(app: FastAPI, ctx: ServerContext) -> None:
    """Add both methods."""

    async def show(request: Request) -> Response:
        return await _answer(ctx, request, reset=False)

    async def restore(request: Request) -> Response:
        return await _answer(ctx, request, reset=True)

    for method, handler, summary in (
        ("GET", show, "The settings in force, and who set them"),
        ("DELETE", restore, "Back to the model's default settings"),
    ):
        app.add_api_route(
            "/v1/settings",
            handler,
            methods=[method],
            summary=summary,
            responses=responses(SettingsReply, 404, 503),
            openapi_extra=query_parameter("model", "Absent: the loaded model."),
            response_model=None,
        )


async def _answer(ctx: ServerContext, request: Request, *, reset: bool) -> Response:
    name = request.query_params.get("model")
    name = None if name == "" else name
    info = await _not_loaded(ctx, name)
    if info is not None:
        # Looking at a model must not swap it in; one that is not loaded has its defaults.
        return JSONReply(_settings_dict(info.id, StickyStore(info.defaults).entries()))
    async with ctx.service.model_lease(name) as model:
        if reset:
            model.store.reset()
        return JSONReply(_settings_dict(model.info.id, model.store.entries()))


async def _not_loaded(ctx: ServerContext, name: str | None) -> "ModelInfo | None":
    """The installed model of that name, if it is not the loaded one."""
    if name is None:
        return None
    models = await ctx.service.models()
    return next((info for info in models if info.id == name and not info.loaded), None)


def _settings_dict(model_id: str, entries: Sequence[SettingEntry]) -> dict[str, Any]:
    settings = [_entry_dict(entry) for entry in entries]
    return {"object": "settings", "model": model_id, "settings": settings}


def _entry_dict(entry: SettingEntry) -> dict[str, Any]:
    origin = entry.origin
    return {
        "field": entry.field,
        "value": entry.value,
        "default": entry.default,
        "set_by": None if origin is None else origin.request_id,
        "set_at": None if origin is None else origin.at.isoformat(),
    }
