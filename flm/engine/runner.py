"""From a plan to logits: the only seam between scheduling and a model."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from flm.engine.decode import DecodeRunner
from flm.engine.graphs import GraphedDecode
from flm.engine.step import DecodeRow, StepPlan
from flm.kvcache.pool import KVPool
from flm.models.fused import FusedModel, Run
from flm.prefill.chunk import Chunk
from flm.prefill.runner import CausalModel, run_chunk


class Runner(Protocol):
    """Whatever can compute a plan; another backend stands here."""

    def forward(self, plan: StepPlan) -> Tensor:
        """Logits [plan.num_rows, vocab], float32, rows in the plan's order. Whatever it raises
        ends the engine: the cache can no longer be trusted."""


class FusedRunner:
    """Runs a fused model over a pool of pages: one forward for everything in a plan."""

    def __init__(self, model: FusedModel, pool: KVPool) -> None:
        self._model = model
        model.bind(pool.keys, pool.values)

    def forward(self, plan: StepPlan) -> Tensor:
        """Logits [plan.num_rows, vocab], float32, rows in the plan's order."""
        runs = [Run(row.token_ids, row.position, row.block_table) for row in plan.decodes]
        num_rows = sum(len(run.token_ids) for run in runs)
        wanted = list(range(num_rows))
        for chunk in plan.chunks:
            runs.append(Run(chunk.token_ids, chunk.start, chunk.block_table))
            num_rows += len(chunk.token_ids)
            wanted += range(num_rows - chunk.num_logits, num_rows)
        return self._model.forward(runs, wanted)


class TorchRunner:
    """Runs a torch model over a pool of pages: decode rows as one batch, chunks one by one. A row
    with drafts is a chunk. With ``graphs`` batches are run by them."""

    def __init__(
        self, model: CausalModel, pool: KVPool, graphs: GraphedDecode | None = None
    ) -> None:
        self._model = model
        self._pool = pool
        self._decode = DecodeRunner(model, pool) if graphs is None else graphs

    @torch.inference_mode()
    def forward(self, plan: StepPlan) -> Tensor:
        """Logits [plan.num_rows, vocab], float32, rows in the plan's order."""
        parts = self._decoded(plan.decodes)
        for chunk in plan.chunks:
            logits = run_chunk(self._model, self._pool, chunk)
            if chunk.num_logits > 0:
                parts.append(logits)
        if not parts:
            return torch.empty((0, 0), dtype=torch.float32, device=self._pool.device)
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _decoded(self, rows: Sequence[DecodeRow]) -> list[Tensor]:
        """Logits of decode rows and their drafts, in parts that follow each other."""
        plain = [row for row in rows if not row.drafts]
        batch = [self._decode.run(plain)] if plain else []
        if len(plain) == len(rows):
            return batch
        together = iter(batch[0][:, None] if batch else ())
        return [
            run_chunk(self._model, self._pool, _as_chunk(row)) if row.drafts else next(together)
            for row in rows
        ]


def _as_chunk(row: DecodeRow) -> Chunk:
    return Chunk(
        request_id=row.request_id,
        token_ids=row.token_ids,
        start=row.position,
        block_table=row.block_table,
        num_logits=len(row.token_ids),
    )
