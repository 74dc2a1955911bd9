"""Leading a matcher along a text, and letting it lead."""

import random
from collections.abc import Iterable, Sequence
from functools import cache

from flm.text.grammar import Closing, CompiledGrammar, GrammarMatcher
from flm.text.tokenizer import Tokenizer

PADDING = 40
"""Logits beyond the vocabulary, as models have them."""


def new_matcher(
    grammar: CompiledGrammar, tokenizer: Tokenizer, closing: Closing | None = None
) -> GrammarMatcher:
    return grammar.matcher(vocab_size=tokenizer.vocab_size + PADDING, closing=closing)


def allowed_ids(matcher: GrammarMatcher) -> list[int]:
    mask = matcher.mask()
    assert mask is not None
    return [8 * i + b for i, byte in enumerate(mask) if byte for b in range(8) if byte >> b & 1]


def is_allowed(matcher: GrammarMatcher, token_id: int) -> bool:
    mask = matcher.mask()
    return mask is None or bool(mask[token_id >> 3] >> (token_id & 7) & 1)


def takes(matcher: GrammarMatcher, token_ids: Iterable[int]) -> bool:
    """True when the masks allow the tokens, one after the other; they are accepted then."""
    for token_id in token_ids:
        if not is_allowed(matcher, token_id):
            return False
        matcher.accept(token_id)
    return True


def accepts(grammar: CompiledGrammar, tokenizer: Tokenizer, text: str) -> bool:
    """True when the whole text can be written byte by byte and may end there."""
    matcher = new_matcher(grammar, tokenizer)
    return takes(matcher, byte_ids(tokenizer, text)) and matcher.is_complete


def byte_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    ids = id_of_bytes(tokenizer)
    return [ids[bytes([value])] for value in text.encode()]


@cache
def id_of_bytes(tokenizer: Tokenizer) -> dict[bytes, int]:
    pieces = {
        tokenizer.token_bytes(i): i
        for i in range(tokenizer.vocab_size)
        if not tokenizer.is_control(i)
    }
    assert all(bytes([value]) in pieces for value in range(256))
    return pieces


def cut_at_random(tokenizer: Tokenizer, text: str, chance: random.Random) -> list[int]:
    """One of the many ways to write the text in tokens."""
    ids, data, result = id_of_bytes(tokenizer), text.encode(), []
    while data:
        lengths = [n for n in range(1, min(16, len(data)) + 1) if data[:n] in ids]
        length = chance.choice(lengths)
        result.append(ids[data[:length]])
        data = data[length:]
    return result


def written_at_random(
    grammar: CompiledGrammar, tokenizer: Tokenizer, chance: random.Random, max_tokens: int = 300
) -> str | None:
    """A text by random choice among what the masks allow; None when it does not end in time."""
    ids = ids_at_random(grammar, tokenizer, chance, max_tokens)
    return None if ids is None else tokenizer.decode(ids)


def ids_at_random(
    grammar: CompiledGrammar,
    tokenizer: Tokenizer,
    chance: random.Random,
    max_tokens: int = 300,
    endings: Sequence[str] = (),
    closing: Closing | None = None,
) -> list[int] | None:
    """The tokens of such a text. What closes something is preferred, so that most texts end:
    closing characters, control tokens, and as far as they go the texts ``endings``."""
    matcher = new_matcher(grammar, tokenizer, closing)
    token_ids: list[int] = []
    while len(token_ids) < max_tokens:
        if matcher.is_complete and closing is None and chance.random() < 0.5:
            return token_ids
        if endings and chance.random() < 0.2:
            for token_id in byte_ids(tokenizer, chance.choice(endings)):
                if not takes(matcher, [token_id]):
                    break
                token_ids.append(token_id)
        allowed = allowed_ids(matcher)
        assert allowed, tokenizer.decode(token_ids)
        token_ids.append(_choice(tokenizer, allowed, chance))
        if token_ids[-1] in tokenizer.eos_ids:
            return token_ids[:-1]
        matcher.accept(token_ids[-1])
    return None


def _choice(tokenizer: Tokenizer, allowed: Sequence[int], chance: random.Random) -> int:
    closers = [
        token_id
        for token_id in allowed
        if tokenizer.token_bytes(token_id) in (b'"', b"]", b"}") or tokenizer.is_control(token_id)
    ]
    return chance.choice(closers if closers and chance.random() < 0.4 else allowed)
