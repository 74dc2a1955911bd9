"""A server's speed at contexts of growing length."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flm.bench.client import OpenAIClient
from flm.bench.errors import BenchError
from flm.bench.prompts import Prompts
from flm.bench.reply import Reply

CONTEXTS = (1024, 2048, 4096, 8192, 16384, 32768)
DECODE_LEN = 128
SPARE = 32
"""Tokens that a prompt may come out longer than asked for."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation; of a single value the deviation is 0."""

    mean: float
    sd: float


@dataclass(frozen=True, slots=True)
class Speed:
    """At a context of ``context_len`` tokens, filled by a prompt and ``DECODE_LEN`` new ones:
    seconds to the first token, tokens a second read and written."""

    context_len: int
    prompt_tokens: int
    ttft: Spread
    prefill: Spread
    decode: Spread


def spread(values: Sequence[float]) -> Spread:
    """Of at least one value."""
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0)


def contexts_within(limit: int) -> tuple[int, ...]:
    """The contexts that a model of that many tokens has.

    Raises:
        BenchError: not even the shortest.
    """
    found = tuple(length for length in CONTEXTS if length <= limit)
    if not found:
        raise BenchError(
            f"The context of {limit} tokens is shorter than {CONTEXTS[0]}, the shortest that is "
            "measured. Ask for a larger --ctx-len."
        )
    return found


def measure(
    client: OpenAIClient, contexts: Sequence[int], iterations: int, prompts: Prompts
) -> Iterator[Speed]:
    """Each context ``iterations`` times, with a new prompt each time; one small request first.

    Raises:
        BenchError: the server fails, or cannot be counted by.
    """
    fit = prompts.fit(lambda text: _ask(client, text, 1).prompt_tokens)
    _ask(client, prompts.text(SPARE), SPARE)
    for length in contexts:
        words = fit.words_for(length - DECODE_LEN - SPARE)
        replies = [_ask(client, prompts.text(words), DECODE_LEN) for _ in range(iterations)]
        yield Speed(
            length,
            replies[0].prompt_tokens,
            spread([reply.first_token_s for reply in replies]),
            spread([reply.prefill_tps for reply in replies]),
            spread([reply.decode_tps for reply in replies]),
        )


def _ask(client: OpenAIClient, text: str, max_tokens: int) -> Reply:
    return client.generate([{"role": "user", "content": text}], max_tokens)
