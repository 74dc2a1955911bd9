"""``POST /api/cancel``: ends a request that runs or waits."""

from fastapi import FastAPI, Request
from starlette.responses import Response

from flm.server.body import read_body
from flm.server.context import ServerContext
from flm.server.errors import JSONReply
from flm.server.openapi import request_body, responses
from flm.server.records import unknown_extras
from flm.server.schemas.cancel import CancelBody
from flm.server.schemas.ollama_replies import OllamaErrorReply
from flm.server.schemas.replies import CancelReply


def add_routes(app: FastAPI, ctx: ServerContext) -> None:
    """Add it."""

    async def cancel(request: Request) -> Response:
        body = (await read_body(request, CancelBody, ctx)).body
        extras = unknown_extras(body, ctx.mode(body.adaptations))
        if ctx.running.cancel(body.request_id):
            message = "Request cancelled successfully"
            return JSONReply({"cancelled": True, "message": message, **extras})
        message = "Request not found or already completed"
        return JSONReply({"cancelled": False, "message": message, **extras})

    app.add_api_route(
        "/api/cancel",
        cancel,
        methods=["POST"],
        summary="End a request that runs or waits",
        responses=responses(CancelReply, 400, 413, 503, error=OllamaErrorReply),
        openapi_extra=request_body(CancelBody),
        response_model=None,
    )
