"""The frozen values between scheduler and runner: what one step computes."""

from dataclasses import dataclass

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
