"""What a model keeps per token, declared without tensors."""

from dataclasses import dataclass
from typing import Final, Literal

StateKind = Literal["full"]
"""Kinds of per-layer state the pool can hold. Windowed, convolutional and recurrent state join
here when a family needs them."""

SCALE_BYTES: Final = 2
"""What a key or a value of one head in numbers of one byte needs besides: a scale in bfloat16."""


@dataclass(frozen=True, slots=True)
class LayerState:
    """The state one layer keeps: keys and values of every position."""

    num_kv_heads: int
    head_dim: int
    kind: StateKind = "full"

    def vector_len(self, element_size: int) -> int:
        """Elements of ``element_size`` bytes that a key or a value of one head takes."""
        return self.head_dim + (SCALE_BYTES if element_size == 1 else 0)


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """The state of a whole model, a layer an entry."""

    layers: tuple[LayerState, ...]

    def bytes_per_token(self, element_size: int) -> int:
        """Bytes that one position takes over all layers, keys and values together."""
        return sum(
            2 * layer.num_kv_heads * layer.vector_len(element_size) * element_size
            for layer in self.layers
        )
