"""What the blocking and the asynchronous client share. httpx is imported when it is needed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flm.router.call import Call
from flm.router.config import RouterConfig
from flm.router.errors import RouterError, TimeoutError, TransportError  # noqa: A004

if TYPE_CHECKING:
    import httpx

HTTP_OK = range(200, 300)
_LOCAL = ("all://127.0.0.1", "all://localhost", "all://[::1]")
MAX_ERROR_BYTES = 1 << 20


def client_options(config: RouterConfig) -> dict[str, Any]:
    """The arguments of httpx's clients."""
    import httpx

    times = config.timeouts
    return {
        "transport": config.transport,
        "timeout": httpx.Timeout(
            connect=times.connect, read=times.read, write=times.write, pool=times.pool
        ),
        "limits": httpx.Limits(
            max_connections=config.max_connections,
            max_keepalive_connections=config.max_connections,
        ),
        # A server on this machine is never behind a proxy.
        "mounts": dict.fromkeys(_LOCAL),
        "follow_redirects": False,
    }


def headers_of(call: Call, key: dict[str, str]) -> dict[str, str]:
    """The headers of a call."""
    accept = "text/event-stream" if call.streams else "application/json"
    own = {"content-type": "application/json", "accept": accept}
    return {**own, **call.provider.headers, **key}


@contextmanager
def translated(call: Call) -> Iterator[None]:
    """Errors of the network as ours."""
    import httpx

    name = call.provider.name
    try:
        yield
    except httpx.TimeoutException as error:
        raise TimeoutError(
            f"{name} took too long ({type(error).__name__}). Try again, or raise the timeouts.",
            provider=name,
        ) from error
    except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError) as error:
        if isinstance(error, RouterError):
            raise
        why = str(error) or type(error).__name__
        raise TransportError(
            f"{call.url} cannot be reached, or broke off: {why}. Is it running, and is base_urls "
            "right?",
            provider=name,
        ) from error


def is_success(response: "httpx.Response") -> bool:
    """True for 2xx."""
    return response.status_code in HTTP_OK


def is_plain_json(response: "httpx.Response") -> bool:
    """True when a whole reply came where a stream was asked for."""
    return "application/json" in response.headers.get("content-type", "")
