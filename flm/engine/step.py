"""The frozen values between scheduler and runner: what one step computes, and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flm.engine.protocol import Logprobs, TokenOut
from flm.errors import FlmError
from flm.prefill.chunk import Chunk


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """A sequence that catches up by one token: ``token_id`` at ``position``, then samples."""

    request_id: str
    token_id: int
    position: int
    block_table: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step. Its logits come as rows in this order: every decode row, then of every chunk its
    ``num_logits`` last rows."""

    decodes: tuple[DecodeRow, ...] = ()
    chunks: tuple[Chunk, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to compute."""
        return not self.decodes and not self.chunks

    @property
    def num_rows(self) -> int:
        """Rows of logits this step yields."""
        return len(self.decodes) + sum(chunk.num_logits for chunk in self.chunks)

    def rows(self) -> dict[str, range]:
        """Which rows belong to which request; possibly none."""
        found = {row.request_id: range(at, at + 1) for at, row in enumerate(self.decodes)}
        start = len(self.decodes)
        for chunk in self.chunks:
            found[chunk.request_id] = range(start, start + chunk.num_logits)
            start += chunk.num_logits
        return found


@dataclass(frozen=True, slots=True)
class StepResult:
    """What became of a plan, by request id. A sequence in ``failures`` has nothing else here.

    ``prompt_logprobs`` are those of the prompt tokens that follow the chunk's rows, in order.
    """

    tokens: Mapping[str, TokenOut] = field(default_factory=dict)
    prompt_logprobs: Mapping[str, tuple[Logprobs, ...]] = field(default_factory=dict)
    failures: Mapping[str, FlmError] = field(default_factory=dict)
