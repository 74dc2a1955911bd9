"""Which part of which prompt is read next: chunks, slices, and the budget of a step."""

from collections.abc import Sequence
from dataclasses import dataclass

MIN_SLICE_LEN = 64
"""What is left of a step's budget goes to a further prompt only if it is at least this much or
finishes that prompt: reading a handful of tokens costs about as much as reading this many."""


@dataclass(frozen=True, slots=True)
class ChunkMark:
    """A chunk that begins: number ``number`` of ``count``, ``num_tokens`` long."""

    number: int
    count: int
    num_tokens: int

    def __str__(self) -> str:
        return f"Prefill chunk {self.number}/{self.count} with {self.num_tokens} tokens"


@dataclass(frozen=True, slots=True)
class PrefillSpan:
    """The part of a prompt that must be read: positions ``start`` to ``end - 1``, of which those
    before ``position`` have been."""

    start: int
    position: int
    end: int

    @property
    def remaining(self) -> int:
        """Tokens still to read."""
        return self.end - self.position


def chunk_lengths(num_new_tokens: int, chunk_len: int) -> tuple[int, ...]:
    """Lengths of the chunks in which ``num_new_tokens`` are read: all ``chunk_len`` but the last.

    Raises:
        ValueError: a negative count, or chunks without length.
    """
    if num_new_tokens < 0 or chunk_len < 1:
        raise ValueError(f"Cannot cut {num_new_tokens} tokens into chunks of {chunk_len}.")
    full, rest = divmod(num_new_tokens, chunk_len)
    return (chunk_len,) * full + ((rest,) if rest > 0 else ())


def chunk_mark(span: PrefillSpan, chunk_len: int) -> ChunkMark | None:
    """The chunk that begins at ``span.position``; None in the middle of one."""
    index, offset = divmod(span.position - span.start, chunk_len)
    if offset != 0 or span.remaining == 0:
        return None
    count = -(-(span.end - span.start) // chunk_len)
    return ChunkMark(index + 1, count, min(chunk_len, span.remaining))


def share_budget(
    spans: Sequence[PrefillSpan], *, budget: int, chunk_len: int, shortest_first: bool
) -> tuple[int, ...]:
    """How many tokens of each span run in the next step: at most ``budget`` in all, no slice
    across the end of a chunk.

    ``spans`` stand in order of arrival and are served in it. With ``shortest_first`` the one
    with the least left comes first. A caller that alternates between the two gives the oldest
    at least half of the steps, and a short prompt need not wait for a long one.
    """
    order = list(range(len(spans)))
    if shortest_first:
        order.sort(key=lambda place: spans[place].remaining)
    lengths = [0] * len(spans)
    left = budget
    for place in order:
        span = spans[place]
        until_chunk_end = chunk_len - (span.position - span.start) % chunk_len
        length = min(span.remaining, until_chunk_end, left)
        is_worth_it = left == budget or length == span.remaining or length >= MIN_SLICE_LEN
        if length > 0 and is_worth_it:
            lengths[place] = length
            left -= length
    return tuple(lengths)
