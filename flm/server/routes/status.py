"""``/``, ``/health`` and the versions."""

from fastapi import FastAPI, Request
from starlette.responses import Response

from flm.server.context import ServerContext
from flm.server.errors import JSONReply
from flm.server.openapi import responses
from flm.server.schemas.ollama_replies import OllamaErrorReply
from flm.server.schemas.replies import Greeting, Health, Version

_OLLAMA = "/api speaks Ollama's protocol; its clients look for the words: Ollama is running"


def add_routes(app: FastAPI, ctx: ServerContext) -> None:
    """Add them; load balancers and command lines like HEAD on the first two."""
    version = ctx.service.version

    async def greet(_request: Request) -> Response:
        return JSONReply(
            {"name": "flm", "version": version, "docs": "/docs", "api": "/v1", "ollama": _OLLAMA}
        )

    async def health(_request: Request) -> Response:
        ctx.service.health()
        return JSONReply({"status": "ok"})

    async def show_version(_request: Request) -> Response:
        return JSONReply({"version": version})

    for path, handler, documented in (
        ("/", greet, responses(Greeting)),
        ("/health", health, responses(Health, 503)),
        ("/v1/version", show_version, responses(Version)),
        ("/api/version", show_version, responses(Version, error=OllamaErrorReply)),
    ):
        app.add_api_route(path, handler, methods=["GET"], responses=documented, response_model=None)
    heads = (("/", greet), ("/health", health), ("/api/version", show_version))
    for path, handler in heads:
        app.add_api_route(path, handler, methods=["HEAD"], include_in_schema=False)
