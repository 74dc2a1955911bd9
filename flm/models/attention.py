"""Attention over the cache: what a layer does with its queries, keys and values."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from flm.kernels.attention import (
    batch_attention,
    batch_mask,
    causal_mask,
    chunk_attention,
    steady_chunk_attention,
    steady_mask,
)
from flm.kvcache.view import ChunkView, DecodeView, StaticDecodeView

AttentionView = ChunkView | DecodeView | StaticDecodeView
"""The views a forward may get."""


@contextmanager
def recordable_attention(device: torch.device) -> Iterator[None]:
    """While this lasts, attention on the device takes only kernels that a CUDA graph may hold."""
    if device.type != "cuda":
        yield
        return
    # That of cuDNN has read memory that is not its own when replayed, which no trial survives.
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        yield


class Attend:
    """Attention over the cache in one forward. Masks are made once and serve every layer.

    With ``exact`` a row's result depends neither on its neighbours nor on how its sequence was
    cut into forwards.
    """

    def __init__(self, kv: AttentionView, device: torch.device, *, exact: bool) -> None:
        self._kv = kv
        self._added: Tensor | None = None
        self._attention = steady_chunk_attention if exact else chunk_attention
        make_mask = steady_mask if exact else causal_mask
        if isinstance(kv, ChunkView):
            self._masks = [make_mask(kv.length - kv.start, kv.start, device)]
        elif isinstance(kv, DecodeView) and device.type != "cuda":
            self._masks = [make_mask(1, length - 1, device) for length in kv.lengths]
        else:
            self._masks = []

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
        """Write the rows' keys and values, then let each row look at what it may.

        ``q`` is [T, H, D], ``k`` and ``v`` [T, Hkv, D]. Returns [T, H * D].
        """
        kv = self._kv
        kv.write(layer, k, v)
        if isinstance(kv, ChunkView):
            keys, values = _as(q, *kv.gather(layer))
            return self._attention(q, keys, values, self._masks[0]).flatten(1)
        if isinstance(kv, DecodeView) and self._masks:
            return self._row_by_row(q, kv, layer).flatten(1)
        keys, values = _as(q, *kv.gather_padded(layer))
        if self._added is None:
            self._added = batch_mask(kv.padding_mask(), q.dtype)
        return batch_attention(q, keys, values, self._added).flatten(1)

    def _row_by_row(self, q: Tensor, kv: DecodeView, layer: int) -> Tensor:
        """On the CPU a padded batch costs the longest row times their number, and its sums would
        change with the company a row keeps."""
        rows = []
        for row, mask in enumerate(self._masks):
            keys, values = _as(q, *kv.gather(layer, row))
            rows.append(self._attention(q[row : row + 1], keys, values, mask))
        return torch.cat(rows)


def _as(q: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values in the format of the queries; the cache may keep them in another."""
    return keys.to(q.dtype), values.to(q.dtype)
