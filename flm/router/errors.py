"""Everything that can go wrong, as one tree. Every message says what to do about it."""

import builtins
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flm.router.response import Response


class RouterError(Exception):
    """Root of the tree. ``retry_after`` is in seconds; what is not known is None."""

    code = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        provider: str | None = None,
        provider_code: str | None = None,
        status: int | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        rate_limits: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code if code is not None else type(self).code
        self.provider = provider
        self.provider_code = provider_code
        self.status = status
        self.request_id = request_id
        self.retry_after = retry_after
        self.rate_limits: dict[str, str] = dict(rate_limits) if rate_limits is not None else {}


class TransportError(RouterError):
    """The network failed: no connection, or one that broke."""

    code = "transport"


class StreamAssemblyError(RouterError):
    """A stream ended without its end. ``partial`` is what had come, None if nothing had."""

    code = "stream_assembly"

    def __init__(self, message: str, *, partial: "Response | None" = None, **details: Any) -> None:
        super().__init__(message, **details)
        self.partial = partial


# --- before anything is sent -------------------------------------------------------------------


class ConfigurationError(RouterError):
    """The router lacks something, or a model belongs to no provider."""

    code = "configuration"


class NotConfiguredError(ConfigurationError):
    """A setting of the router is missing or cannot be used."""

    code = "not_configured"


class MissingCredentialError(NotConfiguredError):
    """No key. ``env_keys`` are the variables that were looked for."""

    def __init__(self, message: str, *, env_keys: tuple[str, ...] = (), **details: Any) -> None:
        super().__init__(message, **details)
        self.env_keys = env_keys


class UnknownModelError(ConfigurationError):
    """No provider goes with the name ``model``."""

    code = "unknown_model"

    def __init__(self, message: str, *, model: str, **details: Any) -> None:
        super().__init__(message, **details)
        self.model = model


class CapabilityError(RouterError):
    """The provider cannot do what was asked. ``feature`` is the path of the setting."""

    code = "capability"

    def __init__(self, message: str, *, feature: str, **details: Any) -> None:
        super().__init__(message, **details)
        self.feature = feature


class UnsupportedFeatureError(CapabilityError):
    """A setting that is refused: by policy, or because no adaptation of it makes sense."""

    code = "unsupported_feature"


# --- what the provider answered ----------------------------------------------------------------


class ProviderError(RouterError):
    """The provider answered with an error, or with something that is no answer."""

    code = "provider"


class AuthError(ProviderError):
    """The key was not accepted."""

    code = "auth"


class BillingError(ProviderError):
    """The account cannot pay."""

    code = "billing"


class RateLimitError(ProviderError):
    """Too many requests."""

    code = "rate_limit"


class InvalidRequestError(ProviderError):
    """The provider did not accept the request."""

    code = "invalid_request"


class ContextLengthError(InvalidRequestError):
    """The prompt is longer than the model's context."""

    code = "context_length"


class UnsupportedModelError(InvalidRequestError):
    """The provider has no such model."""

    code = "unsupported_model"


class TimeoutError(ProviderError, builtins.TimeoutError):  # noqa: A001
    """It took too long."""

    code = "timeout"


class ServerError(ProviderError):
    """The provider failed."""

    code = "server"


RETRYABLE: tuple[type[RouterError], ...] = (
    RateLimitError,
    TimeoutError,
    ServerError,
    TransportError,
)
"""What may go better another time."""
