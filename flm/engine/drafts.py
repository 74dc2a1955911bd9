"""Guesses at what a sequence says next, taken from what it holds already: no second model.

Text repeats itself: a name, a line of code, a passage that is quoted. A guess is what followed the
most recent earlier occurrence of the last few tokens. It costs rows in a forward that is run
anyway, and decides nothing: the sampler takes a guessed token only where it chooses that token.
"""

from collections.abc import Sequence
from typing import Final

MAX_DRAFT_ROWS: Final = 16
"""Drafted rows in one step, over all sequences: more would cost those that guess nothing."""
MAX_DRAFT_LEN: Final = 8
"""The longest draft of a sequence."""
MATCH_LENS: Final = (3, 2)
"""Lengths of the endings that are looked for, the first one that is found counts."""
_FIRST_DRAFT_LEN: Final = 4
_MIN_DRAFT_LEN: Final = 2
_MAX_PAUSE: Final = 64


class History:
    """The tokens of one sequence, searchable."""

    def __init__(self) -> None:
        # A character for a token: a string is searched from its end at memory speed, and a token
        # takes four bytes at most. No vocabulary reaches the end of Unicode.
        self._text = ""

    def __len__(self) -> int:
        return len(self._text)

    def catch_up(self, token_ids: Sequence[int]) -> None:
        """Take in the tokens that came since; ``token_ids`` are all of the sequence."""
        self._text += "".join(map(chr, token_ids[len(self._text) :]))

    def continuation(self, max_len: int) -> tuple[int, ...]:
        """``max_len`` tokens that followed the most recent earlier occurrence of the ending; none
        if it is new. A continuation that reaches the end of the sequence goes on with itself."""
        for match_len in MATCH_LENS:
            start = self._after_match(match_len)
            if start > 0:
                period = self._text[start : start + max_len]
                copies = -(-max_len // len(period))
                return tuple(map(ord, (period * copies)[:max_len]))
        return ()

    def _after_match(self, match_len: int) -> int:
        """Where the most recent earlier occurrence of the last tokens ends; 0 without one."""
        text = self._text
        if len(text) <= match_len:
            return 0
        found = text.rfind(text[-match_len:], 0, len(text) - 1)
        return found + match_len if found >= 0 else 0


class Drafter:
    """Drafts for one sequence, and whether they are worth their rows.

    The length of a draft follows how much of the last one was right. A sequence whose drafts fail
    stops guessing for twice as many tokens each time. Both depend on its own tokens only, and on
    how many rows it was given.
    """

    def __init__(self) -> None:
        self._history = History()
        self._len = _FIRST_DRAFT_LEN
        self._pause = 1
        self._resume_at = 0
        self._has_given_up = False

    def draft(self, token_ids: Sequence[int], max_len: int) -> tuple[int, ...]:
        """At most ``max_len`` guesses at what follows ``token_ids``, all tokens of the sequence."""
        if max_len < 1 or self._has_given_up or len(token_ids) < self._resume_at:
            return ()
        self._history.catch_up(token_ids)
        return self._history.continuation(min(max_len, self._len))

    def learn(self, num_drafted: int, num_accepted: int) -> None:
        """Hear how many of the tokens of the last draft were right."""
        if num_accepted == num_drafted:
            self._len = min(2 * self._len, MAX_DRAFT_LEN)
        else:
            self._len = max(num_accepted, _MIN_DRAFT_LEN)
        if num_accepted > 0:
            self._pause = 1
            return
        self._pause = min(2 * self._pause, _MAX_PAUSE)
        self._resume_at = len(self._history) + self._pause

    def give_up(self) -> None:
        """Never guess again."""
        self._has_given_up = True
