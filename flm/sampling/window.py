"""The tokens that the penalties look at."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping


class Window:
    """The last ``last_n`` tokens of those appended (-1: all), and how often each is among them.

    A token costs the same however many there are.
    """

    __slots__ = ("_counts", "_tokens")

    def __init__(self, last_n: int = -1, token_ids: Iterable[int] = ()) -> None:
        # A deque takes no length that the machine cannot index.
        self._tokens: deque[int] = deque(maxlen=None if last_n < 0 else min(last_n, sys.maxsize))
        self._counts: dict[int, int] = {}
        self.extend(token_ids)

    def __len__(self) -> int:
        return len(self._tokens)

    def __iter__(self) -> Iterator[int]:
        """Oldest first."""
        return iter(self._tokens)

    @property
    def max_len(self) -> int | None:
        """Tokens it can hold; None: any number."""
        return self._tokens.maxlen

    @property
    def counts(self) -> Mapping[int, int]:
        """How often each token is in it; a view that changes with it. No token counts zero."""
        return self._counts

    def append(self, token_id: int) -> None:
        """Take a token in, and the oldest out where it is full."""
        tokens, counts = self._tokens, self._counts
        if len(tokens) == tokens.maxlen:
            if not tokens:
                return
            self._forget(tokens[0])
        tokens.append(token_id)
        counts[token_id] = counts.get(token_id, 0) + 1

    def _forget(self, token_id: int) -> None:
        left = self._counts[token_id] - 1
        if left:
            self._counts[token_id] = left
        else:
            del self._counts[token_id]

    def extend(self, token_ids: Iterable[int]) -> None:
        """Take in tokens, one after the other."""
        for token_id in token_ids:
            self.append(token_id)

    def after(self, token_ids: Iterable[int]) -> "Window":
        """Another window, as this one would be with further tokens."""
        found = Window()
        found._tokens, found._counts = self._tokens.copy(), self._counts.copy()
        found.extend(token_ids)
        return found
