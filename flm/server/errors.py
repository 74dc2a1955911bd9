"""Every failure as the error that the clients of a path know."""

import json
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from flm.errors import (
    FlmError,
    InternalError,
    InvalidRequestError,
    MethodNotAllowedError,
    PathNotFoundError,
)
from flm.log import logger
from flm.server.envelopes import ANTHROPIC_HEADER, envelope_of


def dump_json(content: Any) -> bytes:
    """JSON as UTF-8. What orjson cannot hold (integers beyond 64 bits) the standard library can."""
    try:
        return orjson.dumps(content)
    except TypeError:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class JSONReply(Response):
    """A JSON body. Numbers in it are finite."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Serialise the body."""
        return dump_json(content)


def as_flm_error(error: Exception, request_id: str) -> FlmError:
    """``error`` itself when it is meant for users; else it is logged and a plain 500 takes its
    place, which tells nothing but the id to look for in the log."""
    if isinstance(error, FlmError):
        return error
    logger.error("Request %s failed", request_id, exc_info=error)
    return InternalError(
        f"The server failed on this request; its log tells why, under {request_id}."
    )


def error_response(error: FlmError, scope: Scope) -> JSONReply:
    """The reply for an error that comes before any other part of a reply."""
    form = envelope_of(scope["path"], is_anthropics=ANTHROPIC_HEADER in Headers(scope=scope))
    content = form(error, scope["state"]["request_id"])
    return JSONReply(content, status_code=error.status, headers=error.headers)


def install_handlers(app: FastAPI) -> None:
    """Answer what the framework raises in the envelope too."""
    app.add_exception_handler(FlmError, _on_flm_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_validation_error)


async def _on_flm_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, FlmError)
    return error_response(error, request.scope)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_response(_from_http(request, error), request.scope)


async def _on_validation_error(request: Request, error: Exception) -> Response:
    return error_response(InvalidRequestError(str(error)), request.scope)


def _from_http(request: Request, error: HTTPException) -> FlmError:
    path, method = request.url.path, request.method
    if error.status_code == HTTPStatus.NOT_FOUND:
        return PathNotFoundError(f"There is no {path} here; /docs lists what there is.")
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allow = ", ".join(_allowed_methods(request))
        return MethodNotAllowedError(f"{path} does not take {method}; use {allow}.", allow=allow)
    if error.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
        return InvalidRequestError(str(error.detail))
    return InternalError(str(error.detail))


def _allowed_methods(request: Request) -> list[str]:
    """The methods of every route on this path; the framework names those of the first only."""
    methods: set[str] = set()
    for route in request.app.routes:
        match, _ = route.matches(request.scope)
        if match is not Match.NONE:
            methods.update(getattr(route, "methods", None) or ())
    return sorted(methods)
