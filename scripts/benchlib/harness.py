"""A model without a server: a runner over a pool, and plans for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from flm.config import ServeConfig
from flm.engine.runner import FusedRunner, Runner, TorchRunner
from flm.engine.step import DecodeRow, StepPlan
from flm.kernels.library import Kernels
from flm.kvcache.pool import KVPool
from flm.models.files import ModelFiles, open_model
from flm.models.registry import load_fused, load_model
from flm.prefill.chunk import Chunk
from flm.wiring.numerics import BLOCK_SIZE, Numerics, choose_numerics

SEQUENCE = "bench"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model in memory with room for one sequence of ``num_blocks`` pages."""

    files: ModelFiles
    numerics: Numerics
    runner: Runner
    num_blocks: int

    @property
    def mode(self) -> str:
        """How it computes."""
        return f"{self.numerics.dtype_name}, {'exact' if self.numerics.is_exact else 'fast'}"

    def read(self, token_ids: Sequence[int], start: int = 0, num_logits: int = 0) -> Tensor:
        """Put tokens at ``start`` and after; the logits of the last rows, [num_logits, vocab]."""
        chunk = Chunk(SEQUENCE, tuple(token_ids), start, self._table, num_logits)
        return self.runner.forward(StepPlan(chunks=(chunk,)))

    def decode(self, token_id: int, position: int) -> Tensor:
        """One step of one sequence; logits [1, vocab]."""
        row = DecodeRow(SEQUENCE, token_id, position, self._table)
        return self.runner.forward(StepPlan(decodes=(row,)))

    @property
    def _table(self) -> tuple[int, ...]:
        return tuple(range(self.num_blocks))


def load(
    path: Path, config: ServeConfig, num_tokens: int, kernels: Kernels | None = None
) -> Loaded:
    """Load a model as ``flm serve`` would, with a pool of ``num_tokens``; with ``kernels`` in
    place of its own, where it has some.

    Raises:
        FlmError: the files or an option are at fault.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    files = open_model(path)
    numerics = choose_numerics(config, files.config)
    num_blocks = -(-num_tokens // BLOCK_SIZE)
    own = numerics.kernels
    if own is not None:
        fused = load_fused(files, own if kernels is None else kernels)
        pool = KVPool(fused.layout, num_blocks, BLOCK_SIZE, numerics.kv_dtype, numerics.device)
        return Loaded(files, numerics, FusedRunner(fused, pool), num_blocks)
    model = load_model(files, dtype=numerics.dtype, device=numerics.device, exact=numerics.is_exact)
    pool = KVPool(model.layout, num_blocks, BLOCK_SIZE, numerics.kv_dtype, numerics.device)
    return Loaded(files, numerics, TorchRunner(model, pool), num_blocks)
