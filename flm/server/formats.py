"""How an endpoint writes a whole reply and a stream: what one builder of replies must offer."""

from typing import Any, Protocol

from flm.errors import FlmError
from flm.server.admission import Admitted
from flm.server.framing import OPENAI_EVENTS, Framing
from flm.server.responses import ChunkedReply, Dialect, FullReply, ReplyHead
from flm.types import Event


class Whole(Protocol):
    """Gathers the events of a request into one reply."""

    @property
    def num_entries(self) -> int:
        """About how many tokens the reply will write out one by one."""

    def feed(self, event: Event) -> None:
        """Take one event."""

    def flush(self) -> Any:
        """The reply as JSON values. Every event must have been fed."""


class Chunks(Protocol):
    """Turns each event into the chunks of a stream."""

    def open(self) -> list[dict[str, Any]]:
        """What a stream begins with as soon as its request is admitted."""

    def feed(self, event: Event) -> list[dict[str, Any]]:
        """The chunks that ``event`` becomes."""

    def fail(self, error: FlmError) -> list[dict[str, Any]]:
        """What ends a stream that cannot go on."""


class ReplyFormat(Protocol):
    """The replies of one family of endpoints."""

    framing: Framing

    def whole(self, head: ReplyHead, admission: Admitted) -> Whole:
        """A builder of one whole reply."""

    def chunks(self, head: ReplyHead, admission: Admitted) -> Chunks:
        """A builder of one stream."""


class OpenAIFormat:
    """OpenAI's replies: an envelope with choices, which the dialect writes."""

    framing = OPENAI_EVENTS

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def whole(self, head: ReplyHead, _admission: Admitted) -> Whole:
        """One object with every choice."""
        return FullReply(head, self._dialect)

    def chunks(self, head: ReplyHead, _admission: Admitted) -> Chunks:
        """Chunks of one choice each."""
        return ChunkedReply(head, self._dialect)
