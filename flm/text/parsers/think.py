"""Models that think between two tags before they answer.

The reply is ``[white space] [open] reasoning close answer``. The opening tag counts only where the
reply begins; the prompt may have written it already. The white space beside the tags belongs to
the markup: it is in neither channel. A block that is never closed is reasoning to the end.
"""

from collections.abc import Callable

from flm.text.parsers.base import Piece
from flm.types import Channel


class ThinkParser:
    """A feed/flush machine. ``is_open``: the prompt ends inside the block. ``markers`` are the
    tokens of the tags."""

    def __init__(
        self,
        *,
        is_open: bool,
        open_tag: str,
        close_tag: str,
        markers: frozenset[str] = frozenset(),
    ) -> None:
        self.markers = markers
        self._open_tag = open_tag
        self._close_tag = close_tag
        self._is_open = is_open
        self._held = ""
        self._space: list[str] = []  # set aside before what is held
        self._state: Callable[[bool], list[Piece]] = self._begin
        self.channel: Channel = "reasoning" if is_open else "content"

    def feed(self, text: str) -> list[Piece]:
        """Take output in, give out what is certain."""
        self._held += text
        return self._run(is_last=False)

    def flush(self) -> list[Piece]:
        """The rest, as what it is taken for when nothing follows."""
        return self._run(is_last=True)

    def _run(self, *, is_last: bool) -> list[Piece]:
        pieces: list[Piece] = []
        while True:
            state = self._state
            pieces += state(is_last)
            if self._state == state:
                return pieces

    # --- the states, in the order of a reply ---------------------------------------------------

    def _begin(self, is_last: bool) -> list[Piece]:
        """Before the first character: is there a tag?"""
        self._set_aside(len(self._held) - len(self._held.lstrip()))
        if self._held.startswith(self._open_tag):
            self.channel = "reasoning"
            self._state = self._enter
            return self._markup(len(self._open_tag))
        if not is_last and self._open_tag.startswith(self._held):
            return []
        self._state = self._enter if self._is_open else self._answer
        return []

    def _enter(self, is_last: bool) -> list[Piece]:
        """White space behind the opening tag."""
        del is_last
        pieces = self._markup(len(self._held) - len(self._held.lstrip()))
        if self._held:
            self._state = self._think
        return pieces

    def _think(self, is_last: bool) -> list[Piece]:
        """Inside the block."""
        if is_last and self._close_tag not in self._held:
            return self._text(len(self._held))
        end = self._held.find(self._close_tag)
        certain = len(self._held) - partial_len(self._held, self._close_tag) if end < 0 else end
        length = len(self._held[:certain].rstrip())
        pieces = self._text(length) if length else []
        self._set_aside(certain - length)
        if end >= 0:
            pieces += self._markup(len(self._close_tag))
            self._state = self._leave
        return pieces

    def _leave(self, is_last: bool) -> list[Piece]:
        """White space behind the closing tag."""
        self.channel = "content"
        pieces = self._markup(len(self._held) - len(self._held.lstrip()))
        if self._held or is_last:
            self._state = self._answer
        return pieces

    def _answer(self, is_last: bool) -> list[Piece]:
        """The answer, to the end."""
        del is_last
        self.channel = "content"
        return self._text(len(self._held))

    # --- taking from what is held --------------------------------------------------------------

    def _take(self, length: int) -> str:
        text, self._held = self._held[:length], self._held[length:]
        return text

    def _set_aside(self, length: int) -> None:
        """White space that is text if text follows, and markup if a tag does."""
        self._space.append(self._take(length))

    def _text(self, length: int) -> list[Piece]:
        text = "".join(self._space) + self._take(length)
        self._space.clear()
        return [Piece(self.channel, text, len(text))] if text else []

    def _markup(self, length: int) -> list[Piece]:
        raw_len = sum(map(len, self._space)) + len(self._take(length))
        self._space.clear()
        return [Piece(self.channel, "", raw_len)] if raw_len else []


def partial_len(text: str, tag: str) -> int:
    """Length of the longest end of ``text`` that begins ``tag`` without being all of it."""
    longest = min(len(text), len(tag) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(tag[:n])), 0)
