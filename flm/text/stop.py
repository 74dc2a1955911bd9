"""Stop strings in a text that arrives in pieces.

The match that is complete first wins; of those that end at the same character, the one that began
first (the longest). So the result never depends on how the text was cut into pieces, and nothing
has to be generated beyond a match to know it. One pass over an automaton of all stop strings
(Aho & Corasick 1975): linear in the text, however alike the strings are.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StopStep:
    """Text that is free to go, and the stop string that ended it (None: none yet)."""

    text: str
    matched: str | None = None


@dataclass(slots=True, eq=False)
class _Node:
    """A prefix of stop strings. ``longest`` is the longest stop string that ends here."""

    depth: int
    next: dict[str, "_Node"] = field(default_factory=dict)
    fallback: "_Node | None" = None
    longest: str | None = None


class StopMatcher:
    """A feed/flush machine. Empty stop strings are ignored."""

    def __init__(self, stops: Iterable[str]) -> None:
        self._root = _automaton([stop for stop in stops if stop])
        self._node = self._root
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
        if not self._root.next:
            return StopStep(text)
        whole = self._held + text
        start = len(self._held)
        for index, char in enumerate(text, start=start + 1):
            self._node = self._advance(char)
            if self._node.longest is not None:
                return self._stopped(whole[: index - len(self._node.longest)])
        cut = len(whole) - self._node.depth
        self._held = whole[cut:]
        return StopStep(whole[:cut])

    def flush(self) -> str:
        """The held text: no more comes that could complete a stop string."""
        text, self._held, self._node = self._held, "", self._root
        return text

    def _stopped(self, text: str) -> StopStep:
        self.matched, self._held = self._node.longest, ""
        return StopStep(text, self.matched)

    def _advance(self, char: str) -> _Node:
        node: _Node | None = self._node
        while node is not None and char not in node.next:
            node = node.fallback
        return self._root if node is None else node.next[char]


def _automaton(stops: Iterable[str]) -> _Node:
    root = _Node(depth=0)
    for stop in stops:
        node = root
        for char in stop:
            node = node.next.setdefault(char, _Node(depth=node.depth + 1))
        node.longest = stop
    _link(root)
    return root


def _link(root: _Node) -> None:
    """Point every node at the longest proper suffix that is a node too, nearest nodes first."""
    queue = [root]
    for node in queue:
        for char, child in node.next.items():
            behind = node.fallback
            while behind is not None and char not in behind.next:
                behind = behind.fallback
            child.fallback = root if behind is None else behind.next[char]
            if child.longest is None:
                child.longest = child.fallback.longest
            queue.append(child)
