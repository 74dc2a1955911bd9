"""What every reader of model output gives."""

from dataclasses import dataclass
from typing import Protocol

from flm.types import Channel


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of model output that has been understood.

    ``raw_len`` is the number of characters of output it accounts for. ``text`` is either all of
    them or, where they are the dialect's markup, empty.
    """

    channel: Channel
    text: str
    raw_len: int


class Parser(Protocol):
    """A feed/flush machine over one reply. The pieces account for the whole output, in order."""

    @property
    def channel(self) -> Channel:
        """Where the reply is now."""

    def feed(self, text: str) -> list[Piece]:
        """Take output in, give out what is certain."""

    def flush(self) -> list[Piece]:
        """The rest: no more output comes."""
