"""Two readers in a row: the second reads what the first takes for the answer."""

from collections.abc import Iterable

from flm.text.parsers.base import Parser, Piece
from flm.types import Channel


class ChainedParser:
    """A feed/flush machine. ``outer`` gives its content in one stretch, at the end."""

    def __init__(self, outer: Parser, inner: Parser) -> None:
        self._outer = outer
        self._inner = inner
        self.markers = outer.markers | inner.markers

    @property
    def channel(self) -> Channel:
        """Where the reply is now."""
        return self._outer.channel

    def feed(self, text: str) -> list[Piece]:
        """Take output in, give out what is certain."""
        return self._through(self._outer.feed(text))

    def flush(self) -> list[Piece]:
        """The rest: no more output comes."""
        return [*self._through(self._outer.flush()), *self._inner.flush()]

    def _through(self, pieces: Iterable[Piece]) -> list[Piece]:
        passed: list[Piece] = []
        for piece in pieces:
            is_answer = piece.channel == "content" and piece.text
            passed += self._inner.feed(piece.text) if is_answer else [piece]
        return passed
