"""What every reader of model output gives."""

from dataclasses import dataclass
from typing import Protocol

from flm.types import Channel


@dataclass(frozen=True, slots=True)
class CallPart:
    """What a stretch of output adds to a tool call.

    ``name`` comes with the first part of a call and only there; the ``arguments`` of its parts are,
    in order, the JSON text of the whole. ``is_last``: the call is complete and well formed.
    """

    index: int
    name: str | None
    arguments: str
    is_last: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of model output that has been understood.

    ``raw_len`` is the number of characters of output it accounts for. ``text`` is either all of
    them or, where they are the dialect's markup or belong to a tool call, empty.
    """

    channel: Channel
    text: str
    raw_len: int
    call: CallPart | None = None


class Parser(Protocol):
    """A feed/flush machine over one reply. The pieces account for the whole output, in order."""

    @property
    def channel(self) -> Channel:
        """Where the reply is now."""

    @property
    def markers(self) -> frozenset[str]:
        """Control tokens that the reader wants to see as text; others add none to the output."""

    def feed(self, text: str) -> list[Piece]:
        """Take output in, give out what is certain."""

    def flush(self) -> list[Piece]:
        """The rest: no more output comes."""
