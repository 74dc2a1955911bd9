"""Prompts of a wanted length in tokens that no cache has seen before."""

import random
from collections.abc import Callable
from dataclasses import dataclass

# Short common English words: behind a space each is one token in nearly every vocabulary.
COMMON_WORDS = """
time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program question work government
number night point home water room mother area money story fact month lot right study book
eye job word business issue side kind head house service friend father power hour game line
end member law car city community name president team minute idea kid body information back
parent face others level office door health person art war history party result change
morning reason research girl guy moment air teacher force education
"""
WORDS = tuple(dict.fromkeys(COMMON_WORDS.split()))


@dataclass(frozen=True, slots=True)
class Fit:
    """How words become prompt tokens at one target: ``overhead + words * per_word``."""

    overhead: float
    per_word: float

    def words_for(self, num_tokens: int) -> int:
        """Words that give about ``num_tokens`` prompt tokens, at least one."""
        return max(1, round((num_tokens - self.overhead) / self.per_word))


class Prompts:
    """A source of texts that differ from their first words on."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - words, no secrets

    def text(self, num_words: int) -> str:
        """That many random words: each comes once before any comes again, so that texts of equal
        length have about as many tokens, also where a word is several."""
        words: list[str] = []
        while len(words) < num_words:
            words += self._random.sample(WORDS, len(WORDS))
        return " ".join(words[:num_words])

    def fit(self, count_tokens: Callable[[str], int]) -> Fit:
        """Learn a target's tokens per word and its template's overhead from two probes."""
        size = len(WORDS)
        low, high = count_tokens(self.text(size)), count_tokens(self.text(2 * size))
        per_word = max((high - low) / size, 0.1)
        return Fit(overhead=low - size * per_word, per_word=per_word)
