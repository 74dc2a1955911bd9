"""The form of an error, by the path that was asked."""

from collections.abc import Callable
from typing import Any

from flm.errors import ContextLengthError, FlmError, ModelNotFoundError

Envelope = Callable[[FlmError, str], dict[str, Any]]
"""From an error and the id of the request to the body that tells it."""


def openai_envelope(error: FlmError, request_id: str) -> dict[str, Any]:  # noqa: ARG001
    """``{"error": {message, type, param, code}}``."""
    return error.to_dict()


ANTHROPIC_HEADER = "anthropic-version"
"""What Anthropic's clients send with every request."""

_ANTHROPIC_TYPES = {
    404: "not_found_error",
    413: "request_too_large",
    500: "api_error",
    503: "overloaded_error",
}


def anthropic_envelope(error: FlmError, request_id: str) -> dict[str, Any]:
    """``{"type": "error", "error": {type, message, details}, "request_id"}``, with OpenAI's param
    and code beside the type."""
    # Agents look for these words, to shorten their messages.
    is_long = isinstance(error, ContextLengthError)
    detail = {
        "type": _ANTHROPIC_TYPES.get(error.status, "invalid_request_error"),
        "message": f"prompt is too long: {error.message}" if is_long else error.message,
        "param": error.param,
        "code": error.code,
        "details": {"error_code": error.code},
    }
    return {"type": "error", "error": detail, "request_id": request_id}


def ollama_envelope(error: FlmError, request_id: str) -> dict[str, Any]:  # noqa: ARG001
    """``{"error": text}``, which is all that Ollama's clients read, and beside it the rest."""
    text = error.message
    if isinstance(error, ModelNotFoundError):
        # Clients look for "model ... not found" to offer a download.
        text = text[:1].lower() + text[1:]
    return {"error": text, "type": error.type, "param": error.param, "code": error.code}


_BY_PREFIX: tuple[tuple[str, Envelope], ...] = (
    ("/v1/messages", anthropic_envelope),
    ("/api", ollama_envelope),
)


def envelope_of(path: str, *, is_anthropics: bool = False) -> Envelope:
    """The form in which the clients of ``path`` read errors; ``is_anthropics``: they sent
    the header by which the models are listed in Anthropic's form."""
    if is_anthropics and f"{path}/".startswith("/v1/models/"):
        return anthropic_envelope
    found = (form for prefix, form in _BY_PREFIX if f"{path}/".startswith(f"{prefix}/"))
    return next(found, openai_envelope)
