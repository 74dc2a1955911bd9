"""The frozen values between scheduler and runner: what one step computes, and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flm.engine.protocol import Logprobs, TokenOut
from flm.errors import FlmError
from flm.prefill.chunk import Chunk


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """A sequence that catches up by one token: ``token_id`` at ``position``, then samples.

    ``drafts`` are guesses at what follows, computed at the next positions, a row of logits each.
    A guess that is not what the sampler chooses leaves values in its place that nobody may look
    at; the sequence writes over them as it goes on.
    """

    request_id: str
    token_id: int
    position: int
    block_table: tuple[int, ...]
    drafts: tuple[int, ...] = ()

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens from ``position`` on, a row of logits each."""
        return (self.token_id, *self.drafts)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step. Its logits come as rows in this order: every decode row, each followed by its
    drafts, then of every chunk its ``num_logits`` last rows."""

    decodes: tuple[DecodeRow, ...] = ()
    chunks: tuple[Chunk, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to compute."""
        return not self.decodes and not self.chunks

    @property
    def num_rows(self) -> int:
        """Rows of logits this step yields."""
        num_decoded = sum(1 + len(row.drafts) for row in self.decodes)
        return num_decoded + sum(chunk.num_logits for chunk in self.chunks)

    def rows(self) -> dict[str, range]:
        """Which rows belong to which request; possibly none."""
        found, start = {}, 0
        for row in self.decodes:
            found[row.request_id] = range(start, start + 1 + len(row.drafts))
            start += 1 + len(row.drafts)
        for chunk in self.chunks:
            found[chunk.request_id] = range(start, start + chunk.num_logits)
            start += chunk.num_logits
        return found


@dataclass(frozen=True, slots=True)
class StepResult:
    """What became of a plan, by request id.

    ``tokens`` are those sampled, in order: several where drafts were right. A sequence in
    ``failures`` has nothing else here but what was sampled before it failed; one with drafts and
    neither tokens nor a failure is to be computed again without them. ``prompt_logprobs`` are
    those of the prompt tokens that follow the chunk's rows, in order.
    """

    tokens: Mapping[str, tuple[TokenOut, ...]] = field(default_factory=dict)
    prompt_logprobs: Mapping[str, tuple[Logprobs, ...]] = field(default_factory=dict)
    failures: Mapping[str, FlmError] = field(default_factory=dict)
