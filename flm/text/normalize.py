"""Lines that change from request to request, taken out of system messages.

Clients that put a date or a header first in a system message change the start of every prompt, and
the prefix cache holds nothing then. Who runs the server may name such text by patterns.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import regex

from flm.log import logger

MAX_LINE = 1000
"""Characters of a line that is looked at; longer ones stay as they are."""
TIME_LIMIT_S = 1.0
"""A request that keeps the patterns busy for longer stays as it is: some patterns take for ever
over a line that somebody chose with care."""
ROLES = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class Removal:
    """What was taken out of message ``index``: pieces of its lines, joined by line breaks."""

    index: int
    text: str


class Normalizer:
    """Takes out of each line of the system messages what any of ``patterns`` matches; a line of
    which nothing is left goes with its line break. Immutable.

    Raises:
        regex.error: a pattern is no regular expression.
    """

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._patterns = tuple(regex.compile(pattern) for pattern in patterns)

    def apply(
        self, messages: Sequence[Mapping[str, Any]]
    ) -> tuple[tuple[Mapping[str, Any], ...], tuple[Removal, ...]]:
        """The messages without what matches, and what that was; contents must be strings."""
        if not self._patterns:
            return tuple(messages), ()
        deadline = time.monotonic() + TIME_LIMIT_S
        changed = list(messages)
        removals = []
        try:
            for index, message in enumerate(messages):
                if message["role"] in ROLES:
                    content, removed = self._without(message["content"], deadline)
                    if removed:
                        changed[index] = {**message, "content": content}
                        removals.append(Removal(index, "\n".join(removed)))
        except TimeoutError:
            logger.warning(
                "The patterns of --normalize took more than %.0f s over one request; its messages "
                "stay as they are. Simplify the patterns.",
                TIME_LIMIT_S,
            )
            return tuple(messages), ()
        return tuple(changed), tuple(removals)

    def _without(self, content: str, deadline: float) -> tuple[str, list[str]]:
        kept: list[str] = []
        removed: list[str] = []
        for line in content.split("\n"):
            rest = line if len(line) > MAX_LINE else self._rest(line, removed, deadline)
            if rest == line or rest.strip():
                kept.append(rest)
        return "\n".join(kept), removed

    def _rest(self, line: str, removed: list[str], deadline: float) -> str:
        for pattern in self._patterns:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            found = [item.group() for item in pattern.finditer(line, timeout=left_s)]
            if any(found):
                removed += filter(None, found)
                line = pattern.sub("", line, timeout=left_s)
        return line
