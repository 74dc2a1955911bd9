"""A model's vocabulary in the form that the grammar engine walks."""

import threading
from typing import Any
from weakref import WeakKeyDictionary

from llguidance import LLTokenizer, TokenizerWrapper

from flm.text.tokenizer import Tokenizer


class Vocabulary:
    """The bytes of every token, in a tree. Immutable; may be used from several threads.

    The engine gets an end token of our own, behind the last one: that it is allowed says that the
    text may end, whichever tokens end this request.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.size = tokenizer.vocab_size
        self.end_id = self.size
        self.eos_ids = tokenizer.eos_ids
        self.special = sorted((i, tokenizer.token_text(i)) for i in tokenizer.control_ids)
        self.engine: Any = LLTokenizer(
            TokenizerWrapper(_Source(tokenizer)),
            n_vocab=self.size + 1,
            eos_token=[self.end_id],
            slices=LLTokenizer.json_slices(),
        )

    def split(self, text: str) -> list[str | int]:
        """A text of markup as plain stretches and ids of control tokens, in order."""
        parts: list[str | int] = []
        for marker in self.tokenizer.find_markers(text):
            before, _, text = text.partition(marker)
            token_id = self.tokenizer.control_id(marker)
            assert token_id is not None
            parts += [before, token_id] if before else [token_id]
        return [*parts, text] if text else parts


class _Source:
    """What the engine reads a vocabulary from."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        size = tokenizer.vocab_size
        self._tokenizer = tokenizer
        self.tokens = [*map(tokenizer.token_bytes, range(size)), b"<end>"]
        self.special_token_ids = [*sorted(tokenizer.control_ids), size]
        self.eos_token_id = size
        self.bos_token_id = None

    def __call__(self, text: str | bytes) -> list[int]:
        plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return self._tokenizer.encode(plain)


_VOCABULARIES: WeakKeyDictionary[Tokenizer, Vocabulary] = WeakKeyDictionary()
_LOCK = threading.Lock()


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """The vocabulary of a tokenizer, made once (a second for 150,000 tokens)."""
    with _LOCK:
        found = _VOCABULARIES.get(tokenizer)
        if found is None:
            found = _VOCABULARIES[tokenizer] = Vocabulary(tokenizer)
        return found
