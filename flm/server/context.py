"""What every route shares: the service and the choices made when the server started."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anyio import CapacityLimiter

from flm.adaptation import Mode
from flm.server.response_store import ResponseStore
from flm.server.running import RunningRequests

if TYPE_CHECKING:
    from flm.service import Service

MAX_BODY_BYTES = 256 * 1024 * 1024


def _limiter() -> CapacityLimiter:
    return CapacityLimiter(2)


@dataclass(frozen=True, slots=True)
class ServerContext:
    """One per app. Durations are in seconds.

    ``adaptations`` is the mode of a request that names none; one that names no model is refused
    under ``require_model``. A stream that has been silent for ``keepalive_s`` gets a comment; a
    client that takes nothing for ``send_timeout_s`` counts as gone. ``limiter`` bounds the threads
    that large bodies are parsed in. ``replies`` are those of ``/v1/responses`` that are kept;
    ``running`` knows the requests that can be cancelled.
    """

    service: "Service"
    adaptations: Mode = "note"
    keepalive_s: float = 10.0
    require_model: bool = False
    send_timeout_s: float = 300.0
    max_body_bytes: int = MAX_BODY_BYTES
    limiter: CapacityLimiter = field(default_factory=_limiter)
    replies: ResponseStore = field(default_factory=ResponseStore)
    running: RunningRequests = field(default_factory=RunningRequests)

    def mode(self, asked: Mode | None) -> Mode:
        """The mode of a request that asks for ``asked``."""
        return self.adaptations if asked is None else asked
