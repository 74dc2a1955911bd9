"""Attention over the cache: what a layer does with its queries, keys and values."""

from collections.abc import Callable

import torch
from torch import Tensor

from flm.kernels.attention import batch_attention, chunk_attention, steady_chunk_attention
from flm.kvcache.view import ChunkView, DecodeView

AttentionView = ChunkView | DecodeView
"""The views a forward may get."""


def attend(
    q: Tensor, k: Tensor, v: Tensor, kv: AttentionView, layer: int, *, exact: bool
) -> Tensor:
    """Write the rows' keys and values, then let each row look at what it may.

    ``q`` is [T, H, D], ``k`` and ``v`` [T, Hkv, D]. Returns [T, H * D]. With ``exact`` a row's
    result depends neither on its neighbours nor on how its sequence was cut into forwards.
    """
    kv.write(layer, k, v)
    one_sequence = steady_chunk_attention if exact else chunk_attention
    if isinstance(kv, ChunkView):
        keys, values = kv.gather(layer)
        return one_sequence(q, keys, values, kv.start).flatten(1)
    if q.is_cuda:
        keys, values = kv.gather_padded(layer)
        return batch_attention(q, keys, values, kv.padding_mask()).flatten(1)
    return _row_by_row(q, kv, layer, one_sequence).flatten(1)


def _row_by_row(
    q: Tensor,
    kv: DecodeView,
    layer: int,
    one_sequence: Callable[[Tensor, Tensor, Tensor, int], Tensor],
) -> Tensor:
    """On the CPU a padded batch costs the longest row times their number, and its sums would
    change with the company a row keeps."""
    rows = []
    for row, length in enumerate(kv.lengths):
        keys, values = kv.gather(layer, row)
        rows.append(one_sequence(q[row : row + 1], keys, values, length - 1))
    return torch.cat(rows)
