"""The program of the trial process: compiles grammars and walks them a little.

It reads one JSON object a line (``grammar``, ``size`` and ``special``: the vocabulary's length and
its control tokens) and answers each with one (``error``: a message or null). It is run as a file
and imports nothing of this project, so that it starts quickly. It compiles on half the stack that
the server does, so what it survives the server does too.
"""

import json
import os
import random
import sys
import threading
import time
from functools import lru_cache
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

STACK_BYTES = 8 << 20
CPU_S = 2.0
MEMORY_BYTES = 2 << 30
NUM_WALKS = 2
WALK_LEN = 24


class ByteVocabulary:
    """Control tokens in their places, nothing between them, then single bytes and an end token."""

    def __init__(self, size: int, special: dict[int, str]) -> None:
        pieces = [special.get(token_id, "").encode() for token_id in range(size)]
        end = size + 256
        self.tokens = [*pieces, *(bytes([value]) for value in range(256)), b"<end>"]
        self.special_token_ids = [*special, end]
        self.eos_token_id = end
        self.bos_token_id = None
        self._size = size

    def __call__(self, text: bytes) -> list[int]:
        """Byte by byte."""
        return [self._size + value for value in text]


@lru_cache(maxsize=4)
def tokenizer(size: int, special: str) -> Any:
    """The vocabulary of ``size`` tokens with these control tokens (JSON pairs)."""
    vocabulary = ByteVocabulary(size, dict(json.loads(special)))
    end = vocabulary.eos_token_id
    return LLTokenizer(TokenizerWrapper(vocabulary), eos_token=[end], slices=[])


def limits() -> Any:
    """Of one grammar; the same as in the server."""
    return LLParserLimits(max_lexer_states=100_000, verbose_errors=False)


def first_error(request: dict[str, Any]) -> str | None:
    """What is wrong with a grammar, or None."""
    end_of = tokenizer(request["size"], json.dumps(request["special"]))
    matcher = LLMatcher(end_of, request["grammar"], log_level=0, limits=limits())
    for seed in range(NUM_WALKS):
        if not matcher.is_error():
            error = walk(matcher.deep_copy(), random.Random(seed), end_of.eos_token)  # noqa: S311
            if error is not None:
                return error
    return str(matcher.get_error()) if matcher.is_error() else None


def walk(matcher: Any, chance: random.Random, end: int) -> str | None:
    """Follow a random text; what the engine says when it gives up, or None."""
    for _ in range(WALK_LEN):
        mask = matcher.compute_bitmask()
        if matcher.is_error():
            return str(matcher.get_error())
        allowed = [8 * i + bit for i, byte in enumerate(mask) if byte for bit in _bits(byte)]
        if not allowed:
            return "no text satisfies it"
        token_id = chance.choice(allowed)
        if token_id == end:
            return None
        matcher.consume_token(token_id)
    return None


def _bits(byte: int) -> list[int]:
    return [bit for bit in range(8) if byte >> bit & 1]


class Clock:
    """Ends the process when one grammar takes too much processor time.

    Time on the wall would blame a busy machine on the grammar.
    """

    def __init__(self) -> None:
        self._start: float | None = None

    def answer(self) -> None:
        """Answer until the input ends."""
        for line in sys.stdin:
            self._start = time.process_time()
            try:
                error = first_error(json.loads(line))
            except BaseException as problem:  # noqa: BLE001 - a panic of the engine is an answer
                error = str(problem) or type(problem).__name__
            self._start = None
            sys.stdout.write(json.dumps({"error": error}) + "\n")
            sys.stdout.flush()

    def watch(self, thread: threading.Thread) -> None:
        """Look at the clock until ``thread`` ends."""
        while thread.is_alive():
            thread.join(0.05)
            start = self._start
            if start is not None and time.process_time() - start > CPU_S:
                os._exit(1)


def limit_memory() -> None:
    """Let a runaway compilation fail instead of filling the machine, where that can be set."""
    try:
        import resource
    except ImportError:
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(hard, MEMORY_BYTES)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    except (OSError, ValueError):
        return


def main() -> None:
    """Run the process."""
    limit_memory()
    threading.stack_size(STACK_BYTES)
    clock = Clock()
    thread = threading.Thread(target=clock.answer)
    thread.start()
    clock.watch(thread)


if __name__ == "__main__":
    main()
