"""Output that arrives in pieces, for readers written as if it were all there.

A reader is a generator: it yields pieces of understood output, and None where it needs characters
that have not come. So a dialect reads from top to bottom, and no result can depend on how the
output was cut into pieces.
"""

from collections.abc import Generator
from typing import TypeVar

from flm.text.parsers.base import CallPart, Piece
from flm.types import Channel

T = TypeVar("T")
Steps = Generator[Piece | None, None, T]
"""A reader, or a part of one, whose result is a T."""

_SPACE = " \t\r\n"
_NEVER = "\ud800"  # a lone surrogate, which is in no text


class NoCallError(Exception):
    """The output is not what the dialect has here."""


class Source:
    """The output so far. What has been read and not cut off yet can still become anything."""

    def __init__(self) -> None:
        self._text = ""
        self._position = 0
        self._is_complete = False

    def add(self, text: str) -> None:
        """More output."""
        self._text += text

    def end(self) -> None:
        """No more output comes."""
        self._is_complete = True

    @property
    def is_complete(self) -> bool:
        """True when everything that will come has come."""
        return self._is_complete

    @property
    def ahead(self) -> str:
        """What has come and has not been read."""
        return self._text[self._position :]

    def skip(self, length: int) -> None:
        """Read ``length`` characters of what is there."""
        self._position += length

    @property
    def behind(self) -> str:
        """What has been read and not cut off yet."""
        return self._text[: self._position]

    # --- pieces of what was read ---------------------------------------------------------------

    def cut(self, channel: Channel = "content") -> list[Piece]:
        """What was read, as text."""
        text = self._cut()
        return [Piece(channel, text, len(text))] if text else []

    def cut_markup(self, channel: Channel = "content") -> list[Piece]:
        """What was read, as markup."""
        text = self._cut()
        return [Piece(channel, "", len(text))] if text else []

    def cut_call(self, part: CallPart) -> Piece:
        """What was read, as a part of a call."""
        return Piece("content", "", len(self._cut()), part)

    def _cut(self) -> str:
        text, self._text = self._text[: self._position], self._text[self._position :]
        self._position = 0
        return text

    # --- reading -------------------------------------------------------------------------------

    def peek(self) -> Steps[str]:
        """The next character; empty at the end."""
        while self._position >= len(self._text):
            if self._is_complete:
                return ""
            yield None
        return self._text[self._position]

    def take(self) -> Steps[str]:
        """Read one character.

        Raises:
            NoCallError: there is none.
        """
        char = yield from self.peek()
        if not char:
            raise NoCallError
        self._position += 1
        return char

    def looks_at(self, *literals: str) -> Steps[str]:
        """The first of ``literals`` that comes next; empty for none."""
        for literal in literals:
            if (yield from self._is_next(literal, self._position)):
                return literal
        return ""

    def looks_past_space(self, *literals: str) -> Steps[str]:
        """As ``looks_at``, behind any white space; nothing is read."""
        offset = 0
        while True:
            while self._position + offset < len(self._text):
                if self._text[self._position + offset] not in _SPACE:
                    break
                offset += 1
            else:
                if self._is_complete:
                    return ""
                yield None
                continue
            break
        for literal in literals:
            if (yield from self._is_next(literal, self._position + offset)):
                return literal
        return ""

    def accept(self, literal: str) -> Steps[bool]:
        """Read ``literal`` if it comes next."""
        found = yield from self._is_next(literal, self._position)
        if found:
            self._position += len(literal)
        return found

    def expect(self, literal: str) -> Steps[None]:
        """Read ``literal``.

        Raises:
            NoCallError: something else comes next.
        """
        if not (yield from self.accept(literal)):
            raise NoCallError

    def skip_space(self) -> Steps[None]:
        """Read white space."""
        while True:
            char = yield from self.peek()
            if not char or char not in _SPACE:
                return
            self._position += 1

    def until(self, literal: str) -> Steps[str]:
        """Read up to ``literal``, which stays; the text before it.

        Raises:
            NoCallError: it never comes; everything was read.
        """
        start = self._position
        while True:
            found = self._text.find(literal, self._position)
            if found >= 0:
                self._position = found
                return self._text[start:found]
            if self._is_complete:
                self._position = len(self._text)
                raise NoCallError
            self._position = max(start, len(self._text) - len(literal) + 1)
            yield None

    def rest_until(self, literal: str) -> Steps[str]:
        """Read up to ``literal`` and behind it; the text before it. Without it, all that comes."""
        start = self._position
        try:
            yield from self.until(literal or _NEVER)
        except NoCallError:
            return self._text[start:]
        end = self._position
        self._position += len(literal)
        return self._text[start:end]

    def word(self, ends: str) -> Steps[str]:
        """Read up to one of the characters ``ends``, which stays.

        Raises:
            NoCallError: none of them comes.
        """
        start = self._position
        while True:
            char = yield from self.peek()
            if not char:
                raise NoCallError
            if char in ends:
                return self._text[start : self._position]
            self._position += 1

    def _is_next(self, literal: str, position: int) -> Steps[bool]:
        while True:
            ahead = self._text[position : position + len(literal)]
            if ahead == literal:
                return True
            if not literal.startswith(ahead) or self._is_complete:
                return False
            yield None
