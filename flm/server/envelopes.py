"""The form of an error, by the path that was asked."""

from collections.abc import Callable
from typing import Any

from flm.errors import FlmError, ModelNotFoundError

Envelope = Callable[[FlmError, str], dict[str, Any]]
"""From an error and the id of the request to the body that tells it."""


def openai_envelope(error: FlmError, request_id: str) -> dict[str, Any]:  # noqa: ARG001
    """``{"error": {message, type, param, code}}``."""
    return error.to_dict()


def ollama_envelope(error: FlmError, request_id: str) -> dict[str, Any]:  # noqa: ARG001
    """``{"error": text}``, which is all that Ollama's clients read, and beside it the rest."""
    text = error.message
    if isinstance(error, ModelNotFoundError):
        # Clients look for "model ... not found" to offer a download.
        text = text[:1].lower() + text[1:]
    return {"error": text, "type": error.type, "param": error.param, "code": error.code}


_BY_PREFIX: tuple[tuple[str, Envelope], ...] = (("/api/", ollama_envelope),)


def envelope_of(path: str) -> Envelope:
    """The form in which the clients of ``path`` read errors."""
    found = (form for prefix, form in _BY_PREFIX if path.startswith(prefix))
    return next(found, openai_envelope)
