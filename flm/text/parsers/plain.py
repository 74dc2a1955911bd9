"""Models that only answer."""

from flm.text.parsers.base import Piece
from flm.types import Channel


class PlainParser:
    """Everything is content."""

    @property
    def channel(self) -> Channel:
        """Always the answer."""
        return "content"

    def feed(self, text: str) -> list[Piece]:
        """The text itself."""
        return [Piece("content", text, len(text))] if text else []

    def flush(self) -> list[Piece]:
        """Nothing is ever held back."""
        return []
