"""Runs one slice of a prompt through the model."""

from typing import Protocol

import torch
from torch import Tensor

from flm.kvcache.layout import CacheLayout
from flm.kvcache.pool import KVPool
from flm.kvcache.view import ChunkView
from flm.models.attention import AttentionView
from flm.prefill.chunk import Chunk


class CausalModel(Protocol):
    """What the runners need of a model. It keeps no state: keys and values go to the view."""

    @property
    def layout(self) -> CacheLayout:
        """What each layer stores in the cache."""

    def hidden(self, token_ids: Tensor, positions: Tensor, kv: AttentionView, /) -> Tensor:
        """The last layer's output, [T, hidden], for token_ids and positions [T] (int64)."""

    def logits(self, hidden_rows: Tensor, /) -> Tensor:
        """Next-token logits, [R, vocab] float32, of rows [R, hidden]."""


def run_chunk(model: CausalModel, pool: KVPool, chunk: Chunk) -> Tensor:
    """Compute a chunk into the cache; the logits of its last ``num_logits`` rows.

    Shape [num_logits, vocab], float32; [0, 0] when none are wanted, as the head is not run.
    """
    num_rows = len(chunk.token_ids)
    view = ChunkView(pool, chunk.block_table, chunk.start, num_rows)
    token_ids = torch.tensor(chunk.token_ids, dtype=torch.int64, device=pool.device)  # [T]
    positions = torch.arange(chunk.start, chunk.start + num_rows, device=pool.device)  # [T]
    hidden = model.hidden(token_ids, positions, view)  # [T, hidden]
    if chunk.num_logits == 0:
        return torch.empty((0, 0), dtype=torch.float32, device=pool.device)
    return model.logits(hidden[num_rows - chunk.num_logits :])
