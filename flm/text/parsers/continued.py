"""A reply that continues a message of the request, by a model that thinks before it answers.

The model may take the message for the beginning of its thoughts. Only the closing tag tells: what
came before it is reasoning then. Until it is known, nothing can be shown.
"""

from flm.text.parsers.base import Piece
from flm.types import Channel


class ContinuedThinkParser:
    """A feed/flush machine."""

    def __init__(self, *, open_tag: str, close_tag: str, markers: frozenset[str]) -> None:
        self.channel: Channel = "content"
        self.markers = markers
        self._open_tag = open_tag
        self._close_tag = close_tag
        self._held: list[str] = []
        self._tail = ""  # the last characters, in which the tag may have begun
        self._is_known = False
        self._is_leading = False

    def feed(self, text: str) -> list[Piece]:
        """Nothing, until the closing tag comes."""
        if self._is_known:
            return self._answer(text)
        self._held.append(text)
        self._tail += text
        if self._close_tag not in self._tail:
            self._tail = self._tail[1 - len(self._close_tag) :]
            return []
        whole = "".join(self._held)
        reasoning, _, rest = whole.partition(self._close_tag)
        self._is_known = self._is_leading = True
        return [*self._reasoning(reasoning), *self._answer(rest)]

    def flush(self) -> list[Piece]:
        """Without a closing tag, everything is content."""
        if self._is_known:
            return []
        self._is_known = True
        return self._answer("".join(self._held))

    def _reasoning(self, text: str) -> list[Piece]:
        pieces: list[Piece] = []
        begun = text.lstrip()
        if begun.startswith(self._open_tag):
            thought = begun.removeprefix(self._open_tag).lstrip()
            pieces.append(Piece("reasoning", "", len(text) - len(thought)))
            text = thought
        thought = text.rstrip()
        if thought:
            pieces.append(Piece("reasoning", thought, len(thought)))
        num_markup = len(text) - len(thought) + len(self._close_tag)
        return [*pieces, Piece("reasoning", "", num_markup)]

    def _answer(self, text: str) -> list[Piece]:
        """Content, without the white space behind the tag."""
        pieces: list[Piece] = []
        if self._is_leading:
            stripped = text.lstrip()
            if len(stripped) < len(text):
                pieces.append(Piece("content", "", len(text) - len(stripped)))
            self._is_leading = not stripped
            text = stripped
        return [*pieces, Piece("content", text, len(text))] if text else pieces
