"""From a plan to logits: the only seam between scheduling and a model."""

from typing import Protocol

import torch
from torch import Tensor

from flm.engine.decode import DecodeRunner
from flm.engine.step import StepPlan
from flm.kvcache.pool import KVPool
from flm.prefill.runner import CausalModel, run_chunk


class Runner(Protocol):
    """Whatever can compute a plan; another backend stands here."""

    def forward(self, plan: StepPlan) -> Tensor:
        """Logits [plan.num_rows, vocab], float32, rows in the plan's order. Whatever it raises
        ends the engine: the cache can no longer be trusted."""


class TorchRunner:
    """Runs a torch model over a pool of pages: decode rows as one batch, chunks one by one."""

    def __init__(self, model: CausalModel, pool: KVPool) -> None:
        self._model = model
        self._pool = pool
        self._decode = DecodeRunner(model, pool)

    @torch.inference_mode()
    def forward(self, plan: StepPlan) -> Tensor:
        """Logits [plan.num_rows, vocab], float32, rows in the plan's order."""
        parts = [self._decode.run(plan.decodes)] if plan.decodes else []
        for chunk in plan.chunks:
            logits = run_chunk(self._model, self._pool, chunk)
            if chunk.num_logits > 0:
                parts.append(logits)
        if not parts:
            return torch.empty((0, 0), dtype=torch.float32, device=self._pool.device)
        return parts[0] if len(parts) == 1 else torch.cat(parts)
