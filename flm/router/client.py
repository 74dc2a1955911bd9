"""What both routers are: set up, resolve, plan, and prepare a call. No network."""

from collections.abc import Mapping
from dataclasses import dataclass

from flm.adaptation import Adaptation
from flm.router.call import Call, make_call
from flm.router.config import RouterConfig
from flm.router.errors import RETRYABLE, ConfigurationError, RouterError
from flm.router.http import headers_of
from flm.router.request import Request
from flm.router.routing import Resolution, Routes


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call with its headers, the key among them: not to be shown."""

    call: Call
    headers: Mapping[str, str]


class BaseRouter:
    """The part of a router that needs no network."""

    def __init__(self, config: RouterConfig | None = None) -> None:
        if config is not None and not isinstance(config, RouterConfig):
            raise TypeError(f"A router takes a RouterConfig, not a {type(config).__name__}.")
        self._config = config if config is not None else RouterConfig()
        self._routes = Routes(self._config)
        self._is_closed = False

    @property
    def providers(self) -> tuple[str, ...]:
        """The names of every provider that a model can be asked for at."""
        return tuple(self._routes.providers)

    def resolve(self, model: str) -> Resolution:
        """Where ``model`` goes, and why; ``describe()`` tells it in words. Nothing is sent.

        Raises:
            UnknownModelError: no provider goes with the name.
        """
        return self._routes.resolve(model)

    def plan(self, request: Request) -> tuple[Adaptation, ...]:
        """What would be done other than asked. Nothing is sent, and no key is needed.

        Raises:
            UnknownModelError: no provider goes with the model.
            UnsupportedFeatureError: the call would be refused.
        """
        return self._call(request, stream=False).records

    def _call(self, request: Request, *, stream: bool) -> Call:
        provider, model, _ = self._routes.find(request.model)
        url = self._routes.base_url(provider)
        policy = self._config.adaptations
        return make_call(request, provider, model, policy, base_url=url, stream=stream)

    def _prepare(self, request: Request, *, stream: bool) -> Prepared:
        if self._is_closed:
            raise ConfigurationError("This router is closed; make another one.")
        provider, _, _ = self._routes.find(request.model)
        # A missing key is told before a setting that would be refused.
        key = self._routes.key_headers(provider)
        call = self._call(request, stream=stream)
        return Prepared(call, headers_of(call, key))

    def _wait_before_retry(self, error: RouterError, attempt: int) -> float | None:
        """Seconds until the next try; None: there is none."""
        policy = self._config.retry
        if policy is None or not isinstance(error, RETRYABLE):
            return None
        return policy.wait(attempt, error.retry_after)
