"""Models that only answer."""

from flm.text.parsers.base import Piece
from flm.types import Channel


class PlainParser:
    """Everything is content."""

    channel: Channel = "content"
    markers: frozenset[str] = frozenset()

    def feed(self, text: str) -> list[Piece]:
        """The text itself."""
        return [Piece("content", text, len(text))] if text else []

    def flush(self) -> list[Piece]:
        """Nothing is ever held back."""
        return []


class HeldSpaceParser:
    """Everything is content, and white space waits for the text behind it or the end.

    Where a reply continues a text of the request, its white space is part of the whole text.
    """

    channel: Channel = "content"
    markers: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self._held: list[str] = []

    def feed(self, text: str) -> list[Piece]:
        """Everything up to the last character that is no white space."""
        kept = text.rstrip()
        if not kept:
            self._held.append(text)
            return []
        whole = "".join(self._held) + kept
        self._held = [text[len(kept) :]]
        return [Piece("content", whole, len(whole))]

    def flush(self) -> list[Piece]:
        """The white space at the end."""
        rest, self._held = "".join(self._held), []
        return [Piece("content", rest, len(rest))] if rest else []
