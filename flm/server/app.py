"""The application: routes, middleware and the document that describes them."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from fastapi import FastAPI

from flm.adaptation import Mode
from flm.config import DEFAULT_RESPONSE_STORE
from flm.server.context import ServerContext
from flm.server.errors import install_handlers
from flm.server.middleware import BodyLimit, LastCatch, RequestIds, allow_any_origin
from flm.server.openapi import install_document
from flm.server.response_store import ResponseStore
from flm.server.routes import (
    anthropic,
    cancel,
    generate,
    llama,
    models,
    ollama,
    open_responses,
    settings,
    status,
)

if TYPE_CHECKING:
    from flm.service import Service

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_app(
    service: "Service",
    *,
    adaptations: Mode = "note",
    cors: bool = True,
    keepalive_s: float = 10.0,
    require_model: bool = False,
    response_store: int = DEFAULT_RESPONSE_STORE,
    lifespan: Lifespan | None = None,
) -> FastAPI:
    """The OpenAI API over ``service``.

    ``lifespan`` surrounds the serving: what must be loaded before and closed after.
    """
    ctx = ServerContext(
        service,
        adaptations=adaptations,
        keepalive_s=keepalive_s,
        require_model=require_model,
        replies=ResponseStore(response_store),
    )
    return build_app(ctx, cors=cors, lifespan=lifespan)


def build_app(
    ctx: ServerContext, *, cors: bool = True, lifespan: Lifespan | None = None
) -> FastAPI:
    """As ``create_app``, from a whole context."""
    app = FastAPI(
        title="flm",
        version=ctx.service.version,
        lifespan=lifespan,
        redirect_slashes=False,
        redoc_url=None,
    )
    install_handlers(app)
    dialects = (generate, open_responses, anthropic, llama, ollama)
    for module in (*dialects, cancel, models, settings, status):
        module.add_routes(app, ctx)
    install_document(app)
    # Added last runs first.
    app.add_middleware(LastCatch)
    app.add_middleware(BodyLimit, max_bytes=ctx.max_body_bytes)
    if cors:
        app.add_middleware(allow_any_origin)
    app.add_middleware(RequestIds)
    return app
