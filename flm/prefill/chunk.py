"""The unit of work of prefill: a run of one sequence's tokens that enters the cache at once."""

from dataclasses import dataclass

from flm.prefill.plan import ChunkMark


@dataclass(frozen=True, slots=True)
class Chunk:
    """``token_ids`` take positions ``start``, ``start + 1``, ... of the sequence whose pages are
    ``block_table`` (which covers them already). Logits are wanted of the last ``num_logits`` rows:
    0 in the middle of a prompt, 1 where the sequence samples next, all for prompt log
    probabilities. ``mark`` is set when these tokens are the first of a chunk as the plan counts
    them: that chunk may run in several of these."""

    request_id: str
    token_ids: tuple[int, ...]
    start: int
    block_table: tuple[int, ...]
    num_logits: int
    mark: ChunkMark | None = None
