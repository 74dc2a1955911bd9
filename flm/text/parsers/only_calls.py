"""Replies of a forced call, which hold nothing else."""

from collections.abc import Iterable

from flm.text.parsers.base import Parser, Piece
from flm.types import Channel


class OnlyCallsParser:
    """What ``inner`` takes for an answer is markup here: the reply was cut off where a call began,
    and the beginning of a marker is no text that anybody wrote."""

    def __init__(self, inner: Parser) -> None:
        self._inner = inner
        self.markers = inner.markers

    @property
    def channel(self) -> Channel:
        """Where the reply is now."""
        return self._inner.channel

    def feed(self, text: str) -> list[Piece]:
        """Take output in, give out what is certain."""
        return _without_text(self._inner.feed(text))

    def flush(self) -> list[Piece]:
        """The rest: no more output comes."""
        return _without_text(self._inner.flush())


def _without_text(pieces: Iterable[Piece]) -> list[Piece]:
    return [
        Piece("content", "", piece.raw_len, piece.call) if piece.channel == "content" else piece
        for piece in pieces
    ]
