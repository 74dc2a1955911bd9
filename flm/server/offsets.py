"""Where each token of a choice begins in its text, in characters, told from the tokens' bytes."""

import codecs
from collections.abc import Iterable

from flm.types import TokenLogprob


def num_chars(entries: Iterable[TokenLogprob]) -> int:
    """Characters of the text of ``entries``."""
    text = _Text(0)
    for entry in entries:
        text.add(entry)
    return text.end()


def text_offsets(entries: Iterable[TokenLogprob], start: int) -> list[int]:
    """Where each token begins, in characters; a token inside a character counts as at it."""
    text = _Text(start)
    return [text.add(entry) for entry in entries]


class _Text:
    """Decodes the bytes of tokens as the text of a reply is decoded."""

    def __init__(self, start: int) -> None:
        self._num_chars = start
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    @property
    def _is_inside(self) -> bool:
        return self._decoder.getstate()[0] != b""

    def add(self, entry: TokenLogprob) -> int:
        """Take the next token in; where it begins."""
        if entry.is_hidden:
            return self._num_chars
        was_inside = self._is_inside
        first = self._decoder.decode(entry.raw[:1])
        goes_on = len(first) == 0 or (len(first) == 1 and not self._is_inside)
        # A character that does not go on has become a U+FFFD of its own, before this token.
        begin = self._num_chars + (was_inside and not goes_on)
        self._num_chars += len(first) + len(self._decoder.decode(entry.raw[1:]))
        return begin

    def end(self) -> int:
        """Where the text ends."""
        return self._num_chars + len(self._decoder.decode(b"", final=True))
