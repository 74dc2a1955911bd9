"""Stop strings in a text that arrives in pieces.

The match that is complete first wins; of those that end at the same character, the one that began
first (the longest). So the result never depends on how the text was cut into pieces, and nothing
has to be generated beyond a match to know it. Each stop string is searched by itself (Knuth,
Morris & Pratt 1977): linear in the text, however alike the strings are. What a string repeats of
its own beginning is learnt only as far as the text follows it, so the length of the string costs
nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StopStep:
    """Text that is free to go, and the stop string that ended it (None: none yet)."""

    text: str
    matched: str | None = None


@dataclass(slots=True, eq=False)
class _Search:
    """The longest beginning of ``stop`` that the text ends with is ``depth`` characters long.
    ``borders[k - 1]``: the longest proper beginning of its first k characters that ends them too.
    """

    stop: str
    depth: int = 0
    borders: list[int] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """True when the text ends with the stop string."""
        return self.depth == len(self.stop)

    def advance(self, char: str) -> None:
        """Take the next character of the text."""
        while self.depth > 0 and self.stop[self.depth] != char:
            self.depth = self.borders[self.depth - 1]
        if self.stop[self.depth] == char:
            self.depth += 1
            if self.depth > len(self.borders):
                self.borders.append(self._border(self.depth))

    def _border(self, length: int) -> int:
        if length == 1:
            return 0
        last = self.stop[length - 1]
        border = self.borders[length - 2]
        while border > 0 and self.stop[border] != last:
            border = self.borders[border - 1]
        return border + (self.stop[border] == last)


class StopMatcher:
    """A feed/flush machine. Empty stop strings are ignored."""

    def __init__(self, stops: Iterable[str]) -> None:
        # The longest first: it wins where several end at the same character.
        distinct = dict.fromkeys(stop for stop in stops if stop)
        self._searches = [_Search(stop) for stop in sorted(distinct, key=len, reverse=True)]
        self._held = ""
        self.matched: str | None = None

    @property
    def held(self) -> str:
        """Text that may still be the beginning of a stop string."""
        return self._held

    def feed(self, text: str) -> StopStep:
        """Take text in, give out what no stop string can take back. After a match, nothing."""
        if self.matched is not None:
            return StopStep("", self.matched)
        if not self._searches:
            return StopStep(text)
        whole = self._held + text
        for index, char in enumerate(text, start=len(self._held) + 1):
            for search in self._searches:
                search.advance(char)
            found = next((search.stop for search in self._searches if search.is_complete), None)
            if found is not None:
                self.matched, self._held = found, ""
                return StopStep(whole[: index - len(found)], found)
        cut = len(whole) - max(search.depth for search in self._searches)
        self._held = whole[cut:]
        return StopStep(whole[:cut])

    def flush(self) -> str:
        """The held text: no more comes that could complete a stop string."""
        text, self._held = self._held, ""
        for search in self._searches:
            search.depth = 0
        return text
