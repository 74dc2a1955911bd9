"""The waiting line: first come, first served.

How many may wait is decided at the engine's door, where a whole submission is taken or refused.
Inside, a preempted sequence can always come back.
"""

from collections import deque
from collections.abc import Iterator

from flm.engine.sequence import Sequence


class WaitingLine:
    """Sequences that wait to run, in the order in which they will be considered."""

    def __init__(self) -> None:
        self._sequences: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    def append(self, sequence: Sequence) -> None:
        """Join at the back."""
        self._sequences.append(sequence)

    def return_to_front(self, sequence: Sequence) -> None:
        """Put a preempted sequence before all others."""
        self._sequences.appendleft(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Leave the line, from any place in it."""
        self._sequences.remove(sequence)
