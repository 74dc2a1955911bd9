"""The exception tree. Every error a user can meet carries its HTTP status, its place in the
OpenAI error envelope, and a message that names the remedy."""

from collections.abc import Sequence
from typing import Any, ClassVar


class FlmError(Exception):
    """Root of every error this project raises on purpose.

    ``str(error)`` is the whole message for a person: what is wrong, then what to do about it.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    @property
    def headers(self) -> dict[str, str]:
        """Extra HTTP headers the reply must carry."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """The OpenAI envelope: ``{"error": {message, type, param, code}}``."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }


# --- the request is at fault -------------------------------------------------------------------


class InvalidRequestError(FlmError):
    """A field has a value that cannot be read."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_value"


class InvalidJSONError(InvalidRequestError):
    """The body is not a JSON object."""

    code = "invalid_json"


class RefusedError(InvalidRequestError):
    """The caller asked that nothing be adapted, and something would have been."""

    code = "refused"


class NoThreadsError(InvalidRequestError):
    """The caller wants its messages to be kept here, and sent only once."""

    code = "thread_unsupported_request"


class ContextLengthError(FlmError):
    """The prompt has as many tokens as the context, or more."""

    status = 400
    type = "model_error"
    code = "context_length_exceeded"


class ModelNotFoundError(InvalidRequestError):
    """No installed model or served name matches."""

    status = 404
    code = "model_not_found"


class ReplyNotFoundError(InvalidRequestError):
    """No reply of that id, or no item of one, is kept."""

    status = 404
    code = "not_found"


class PreviousReplyNotFoundError(InvalidRequestError):
    """The reply that a request goes on from is not kept."""

    code = "previous_response_not_found"


class PathNotFoundError(InvalidRequestError):
    """No such path."""

    status = 404
    code = "not_found"


class MethodNotAllowedError(InvalidRequestError):
    """The path exists, the method does not; ``allow`` lists those that do."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, message: str, *, allow: str) -> None:
        super().__init__(message)
        self.allow = allow

    @property
    def headers(self) -> dict[str, str]:
        """The ``Allow`` header that HTTP requires on a 405."""
        return {"Allow": self.allow}


class RequestCancelledError(InvalidRequestError):
    """The request was cancelled before there was anything of a reply."""

    status = 499
    code = "cancelled"


class NotSupportedError(InvalidRequestError):
    """The path is known from other servers, and this one does not do that."""

    status = 501
    code = "not_supported"


class BodyTooLargeError(InvalidRequestError):
    """The body is larger than the server reads."""

    status = 413
    code = "too_large"


# --- the server cannot serve now ---------------------------------------------------------------


class UnavailableError(FlmError):
    """Nothing is wrong with the request; try again after ``retry_after`` seconds."""

    status = 503
    code = "unavailable"

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        """``Retry-After`` in seconds; every 503 carries it."""
        return {"Retry-After": str(self.retry_after)}


class QueueFullError(UnavailableError):
    """The waiting line is full."""

    code = "queue_full"


class LoadingError(UnavailableError):
    """A model is being loaded."""

    code = "loading"


class EngineDeadError(UnavailableError):
    """The engine thread ended; the server must be restarted."""

    code = "engine_dead"


class ShuttingDownError(UnavailableError):
    """The server is closing and ended this request after its grace period."""

    code = "shutting_down"


class InternalError(FlmError):
    """Our own fault."""


# --- the command line --------------------------------------------------------------------------


class ConfigError(FlmError):
    """A flag, an environment variable or a combination of them cannot be honoured."""

    code = "config"


class ModelFileError(FlmError):
    """A model file is missing, damaged, or of a kind that cannot be read."""

    code = "model_file"


class DownloadError(FlmError):
    """A model could not be fetched whole."""

    code = "download"


def require_token_ids(token_ids: Sequence[int], vocab_size: int, *, param: str) -> None:
    """Refuse token ids that are not in a vocabulary of ``vocab_size``.

    Raises:
        InvalidRequestError: naming the first wrong id and the field it came in.
    """
    if not token_ids or (min(token_ids) >= 0 and max(token_ids) < vocab_size):
        return
    wrong = next(token_id for token_id in token_ids if not 0 <= token_id < vocab_size)
    raise InvalidRequestError(
        f"{param}: token id {wrong} is not in the vocabulary; ids run from 0 to {vocab_size - 1}.",
        param=param,
    )
