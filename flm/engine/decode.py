"""One new position for every sequence that has caught up, all in one forward."""

from collections.abc import Sequence

import torch
from torch import Tensor

from flm.engine.step import DecodeRow
from flm.kvcache.pool import KVPool
from flm.kvcache.view import DecodeView, TablePacker
from flm.prefill.runner import CausalModel


class DecodeRunner:
    """Runs the decode rows of a step as one batch."""

    def __init__(self, model: CausalModel, pool: KVPool) -> None:
        self._model = model
        self._pool = pool
        self._packer = TablePacker(pool)

    def run(self, rows: Sequence[DecodeRow]) -> Tensor:
        """Logits [B, vocab], float32, in the order of ``rows``."""
        device = self._pool.device
        token_ids = torch.tensor([row.token_id for row in rows], device=device)  # [B]
        positions = torch.tensor([row.position for row in rows], device=device)  # [B]
        tables = self._packer.pack([row.block_table for row in rows])  # [B, width]
        view = DecodeView(self._pool, tables, [row.position + 1 for row in rows])
        return self._model.logits(self._model.hidden(token_ids, positions, view))
