"""From an error that a provider reports to the error that is raised."""

import datetime
import email.utils
import re
from collections.abc import Mapping
from typing import Any

from flm.router.errors import (
    AuthError,
    BillingError,
    ContextLengthError,
    InvalidRequestError,
    ProviderError,
    RateLimitError,
    ServerError,
    TimeoutError,  # noqa: A004
    UnsupportedModelError,
)

_MAX_EXCERPT = 300

_BY_CODE: Mapping[str, type[ProviderError]] = {
    # Anthropic
    "authentication_error": AuthError,
    "permission_error": AuthError,
    "billing_error": BillingError,
    "rate_limit_error": RateLimitError,
    "not_found_error": InvalidRequestError,
    "invalid_request_error": InvalidRequestError,
    "request_too_large": InvalidRequestError,
    "api_error": ServerError,
    "overloaded_error": ServerError,
    "timeout_error": TimeoutError,
    # OpenAI and those like it
    "invalid_api_key": AuthError,
    "insufficient_quota": BillingError,
    "rate_limit_exceeded": RateLimitError,
    "context_length_exceeded": ContextLengthError,
    "model_not_found": UnsupportedModelError,
    "server_error": ServerError,
    "queue_full": ServerError,
    # Gemini
    "INVALID_ARGUMENT": InvalidRequestError,
    "PERMISSION_DENIED": AuthError,
    "UNAUTHENTICATED": AuthError,
    "RESOURCE_EXHAUSTED": RateLimitError,
    "FAILED_PRECONDITION": BillingError,
    "UNAVAILABLE": ServerError,
    "INTERNAL": ServerError,
    "DEADLINE_EXCEEDED": TimeoutError,
    "NOT_FOUND": InvalidRequestError,
}
_BY_STATUS: Mapping[int, type[ProviderError]] = {
    401: AuthError,
    403: AuthError,
    402: BillingError,
    408: TimeoutError,
    504: TimeoutError,
    429: RateLimitError,
}
_REMEDIES: Mapping[type[ProviderError], str] = {
    AuthError: "Check the key.",
    BillingError: "Check the account.",
    RateLimitError: "Wait, or give the router a RetryPolicy.",
    ContextLengthError: "Shorten the messages or lower max_tokens.",
    UnsupportedModelError: "Check the model's name.",
    InvalidRequestError: "Change what it names.",
    TimeoutError: "Try again, or raise the timeouts.",
    ServerError: "Try again later.",
    ProviderError: "Try again later.",
}
_TOO_LONG = re.compile(
    r"prompt is too long|maximum context length|context window|input token count"
    r"|max length reached",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"\bmodels?[:/ ].*(not found|not supported|does not exist)|^model:", re.IGNORECASE
)


def error_of(
    provider: str,
    data: Any,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> ProviderError:
    """The error in ``data``, a body or an event that carries one. ``headers`` are in lower case."""
    fields = headers if headers is not None else {}
    details = _details(data)
    codes = [
        text for name in ("code", "status", "type") if isinstance(text := details.get(name), str)
    ]
    kind = _kind(codes, status, str(details.get("message") or ""))
    message = str(details.get("message") or "it gave no reason")[: _MAX_EXCERPT * 10]
    told = (
        f"{provider} answered {status}" if status is not None else f"{provider} reported an error"
    )
    request_id = fields.get("x-request-id") or fields.get("request-id")
    if isinstance(data, Mapping) and isinstance(data.get("request_id"), str):
        request_id = data["request_id"]
    return kind(
        f"{told}: {message.rstrip()} {_REMEDIES[kind]}",
        provider=provider,
        provider_code=codes[0] if codes else None,
        status=status,
        request_id=request_id,
        retry_after=retry_after(fields),
        rate_limits={name: value for name, value in fields.items() if "ratelimit" in name},
    )


def _details(data: Any) -> Mapping[str, Any]:
    if isinstance(data, list) and data:
        data = data[0]
    error = data.get("error", data) if isinstance(data, Mapping) else data
    if isinstance(error, Mapping):
        return error
    return {"message": str(error)[:_MAX_EXCERPT]} if error else {}


def _kind(codes: list[str], status: int | None, message: str) -> type[ProviderError]:
    kind = next((_BY_CODE[code] for code in codes if code in _BY_CODE), None)
    if kind is None and status is not None:
        kind = _BY_STATUS.get(status, ServerError if status >= 500 else InvalidRequestError)
    if kind is InvalidRequestError:
        if _TOO_LONG.search(message):
            return ContextLengthError
        if _NO_MODEL.search(message):
            return UnsupportedModelError
    if kind in (AuthError, RateLimitError) and "insufficient_quota" in codes:
        return BillingError
    return kind if kind is not None else ProviderError


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, as ``Retry-After`` (seconds or a date) or ``retry-after-ms`` say."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        value = headers.get("retry-after")
        if value is None:
            return None
        if re.fullmatch(r"\s*\d+(\.\d+)?\s*", value):
            return float(value)
        at = email.utils.parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    now = datetime.datetime.now(datetime.UTC)
    return max(0.0, (at.replace(tzinfo=at.tzinfo or datetime.UTC) - now).total_seconds())


def unreadable(provider: str, reason: object, status: int | None = None) -> ProviderError:
    """The provider's reply is not what its format says."""
    return ProviderError(
        f"The reply of {provider} cannot be read: {str(reason)[:_MAX_EXCERPT]}. Check base_urls: "
        "is this the API that it is taken for?",
        code="unreadable_reply",
        provider=provider,
        status=status,
    )
