"""How a router is set up."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flm.adaptation import Mode
from flm.router import checks
from flm.router.capabilities import Provider
from flm.router.errors import NotConfiguredError

if TYPE_CHECKING:
    import httpx

Key = str | Callable[[], str]
POLICIES = ("note", "silent", "refuse")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds, for each act on a socket and not for a whole request; None waits for ever."""

    connect: float | None = 10.0
    read: float | None = 600.0
    write: float | None = 600.0
    pool: float | None = 600.0

    def __post_init__(self) -> None:
        for name in ("connect", "read", "write", "pool"):
            object.__setattr__(
                self, name, checks.number(f"timeouts.{name}", getattr(self, name), 0)
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Up to ``retries`` more tries after an error that may pass.

    The provider's Retry-After is waited for when it is at most ``max_wait`` seconds, and the error
    raised when it is longer; without one the wait is ``backoff``, twice that, and so on.
    """

    retries: int = 2
    backoff: float = 0.5
    max_wait: float = 60.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "retries", checks.whole("retry.retries", self.retries, 0))
        for name in ("backoff", "max_wait"):
            object.__setattr__(self, name, checks.number(f"retry.{name}", getattr(self, name), 0))

    def wait(self, attempt: int, retry_after: float | None) -> float | None:
        """Seconds before the try after ``attempt`` (from 0); None: give up."""
        if attempt >= self.retries:
            return None
        if retry_after is not None:
            return retry_after if retry_after <= self.max_wait else None
        return min(self.backoff * 2.0**attempt, self.max_wait)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig:
    """Settings of a router.

    ``adaptations``: ``note`` keeps the record, ``silent`` leaves it off the response, ``refuse``
    raises instead of changing what was asked. ``api_keys`` (a key or a function that returns one)
    and ``base_urls`` go by the provider's name; keys that are not there are looked for in ``env``,
    None being the process's own. ``transport`` is httpx's, for tests and proxies. ``retry``: None
    never tries again. ``providers`` are declared beside those that are known.
    """

    adaptations: Mode = "note"
    base_urls: Mapping[str, str] = field(default_factory=dict)
    api_keys: Mapping[str, Key] = field(default_factory=dict, repr=False)
    env: Mapping[str, str] | None = field(default=None, repr=False)
    transport: "httpx.BaseTransport | httpx.AsyncBaseTransport | None" = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    max_connections: int = 100
    retry: RetryPolicy | None = None
    providers: tuple[Provider, ...] = ()

    def __post_init__(self) -> None:
        if self.adaptations not in POLICIES:
            choices = ", ".join(POLICIES)
            raise ValueError(f"adaptations must be one of {choices}, not {self.adaptations!r}.")
        checks.instance("timeouts", self.timeouts, Timeouts)
        checks.instance("retry", self.retry, RetryPolicy)
        checks.whole("max_connections", self.max_connections, 1)
        for name, url in self.base_urls.items():
            if not isinstance(url, str) or not url.startswith(("http://", "https://")):
                raise NotConfiguredError(
                    f"base_urls[{name!r}] must begin with http:// or https://, with the path of "
                    "the API behind: http://127.0.0.1:52625/v1."
                )
        object.__setattr__(self, "providers", tuple(self.providers))
        for provider in self.providers:
            checks.instance("providers", provider, Provider)

    def environment(self) -> Mapping[str, str]:
        """Where keys are looked for."""
        return os.environ if self.env is None else self.env


def checked_key(where: str, value: Any) -> str:
    """A key that can go into a header.

    Raises:
        NotConfiguredError: it cannot; the message does not show it.
    """
    if not isinstance(value, str) or not value.strip():
        raise NotConfiguredError(f"{where} is empty; set it or leave it out.")
    key = value.strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise NotConfiguredError(f"{where} holds characters that no key has; copy it again.")
    return key
