"""A small attention model with random weights, for tests of the cache and the engine.

Real enough that every mistake shows: what it says depends on every visible position, on their
order, and on nothing else.
"""

import torch
from torch import Tensor

from flm.kvcache.layout import CacheLayout, LayerState
from flm.kvcache.view import ChunkView, DecodeView, KVView, StaticDecodeView

VOCAB_SIZE = 97


class FakeModel:
    """Two layers of grouped causal attention with sinusoidal positions, float32."""

    def __init__(
        self, *, num_layers: int = 2, heads: int = 4, kv_heads: int = 2, head_dim: int = 8
    ) -> None:
        generator = torch.Generator().manual_seed(7)
        width = heads * head_dim

        def weight(rows: int, columns: int) -> Tensor:
            return torch.randn(rows, columns, generator=generator) / columns**0.5

        self.layout = CacheLayout(tuple(LayerState(kv_heads, head_dim) for _ in range(num_layers)))
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.embedding = torch.randn(VOCAB_SIZE, width, generator=generator)
        self.queries = [2 * weight(width, width) for _ in range(num_layers)]
        self.keys = [2 * weight(kv_heads * head_dim, width) for _ in range(num_layers)]
        self.values = [weight(kv_heads * head_dim, width) for _ in range(num_layers)]
        self.head = 4 * weight(VOCAB_SIZE, width)
        self.frequencies = torch.exp(torch.linspace(0, -7, width // 2))
        self.num_rows_computed = 0
        self.forwards: list[int] = []

    def hidden(self, token_ids: Tensor, positions: Tensor, kv_view: KVView) -> Tensor:
        """[T, width]."""
        self.num_rows_computed += len(token_ids)
        self.forwards.append(len(token_ids))
        angles = positions[:, None] * self.frequencies
        x = self.embedding[token_ids] + torch.cat([angles.sin(), angles.cos()], dim=1)
        for layer in range(len(self.layout.layers)):
            shape = (len(token_ids), -1, self.head_dim)
            normed = torch.nn.functional.layer_norm(x, x.shape[-1:])
            queries = (normed @ self.queries[layer].T).view(shape)
            keys = (normed @ self.keys[layer].T).view(shape)
            kv_view.write(layer, keys, (normed @ self.values[layer].T).view(shape))
            x = x + self._attend(layer, queries, positions, kv_view)
        return x

    def _attend(self, layer: int, queries: Tensor, positions: Tensor, view: KVView) -> Tensor:
        if isinstance(view, ChunkView):
            keys, values = view.gather(layer)
            mask = torch.arange(view.length) <= positions[:, None]
            return self._sdpa(queries[None], keys[None], values[None], mask[None])[0]
        assert isinstance(view, DecodeView | StaticDecodeView)
        keys, values = view.gather_padded(layer)
        mask = view.padding_mask()[:, None]
        return self._sdpa(queries[:, None], keys, values, mask)[:, 0]

    def _sdpa(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """[B, T, heads, D] against [B, L, kv_heads, D], mask [B, T, L] -> [B, T, width]."""
        attended = torch.nn.functional.scaled_dot_product_attention(
            queries.transpose(1, 2),
            keys.transpose(1, 2),
            values.transpose(1, 2),
            attn_mask=mask[:, None],
            enable_gqa=True,
        )
        return attended.transpose(1, 2).flatten(2)

    def logits(self, hidden_rows: Tensor) -> Tensor:
        """[R, VOCAB_SIZE] float32."""
        return torch.nn.functional.layer_norm(hidden_rows, hidden_rows.shape[-1:]) @ self.head.T
