"""The tensors behind the blocks."""

import itertools
import math
from typing import Final

import numpy as np
import torch
from torch import Tensor

from flm.kvcache.layout import CacheLayout, LayerState

_ALIGNMENT: Final = 64
"""Bytes of a cache line: what begins elsewhere is read in two."""


class KVPool:
    """Keys and values of every layer, in pages of ``block_size`` positions.

    ``keys[layer]`` and ``values[layer]`` are [num_blocks + 2, block_size, num_kv_heads,
    head_dim]; in ``torch.int8`` the last dimension has room for a scale as well, and how a page is
    divided is the affair of the kernels that fill it. Two pages belong to nobody. ``null_block``
    stays zero: shorter rows of a batch are padded with it. ``scratch_block`` is what rows that only
    fill up a batch write to, and no other row looks at it. Memory is zero at first; on the CPU a
    page of it is taken only when it is first written to.
    """

    def __init__(
        self,
        layout: CacheLayout,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        self.layout = layout
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.null_block = num_blocks
        self.scratch_block = num_blocks + 1
        self.dtype = dtype
        self.device = torch.device(device)
        keys, values = self._stacks(), self._stacks()
        self._all_stacks = keys + values
        self.keys = tuple(stack[place] for stack in keys for place in range(len(stack)))
        self.values = tuple(stack[place] for stack in values for place in range(len(stack)))
        # The same memory as one row per position: [(num_blocks + 2) * block_size, heads, dim].
        self.flat_keys = tuple(pages.flatten(0, 1) for pages in self.keys)
        self.flat_values = tuple(pages.flatten(0, 1) for pages in self.values)

    def _stacks(self) -> list[Tensor]:
        """The pages of neighbouring layers as tensors, [layers, num_blocks + 2, block_size, heads,
        dim] each."""
        layers = self.layout.layers
        if self.device.type == "cpu":
            # One by one, so that each begins at a cache line.
            groups = [[layer] for layer in layers]
        else:
            # Layers of one shape together: what is done to all of them is one launch.
            groups = [list(alike) for _, alike in itertools.groupby(layers)]
        pages = (self.num_blocks + 2, self.block_size)
        return [
            _zeros(
                (len(group), *pages, group[0].num_kv_heads, self._vector_len(group[0])),
                self.dtype,
                self.device,
            )
            for group in groups
        ]

    def _vector_len(self, layer: LayerState) -> int:
        return layer.vector_len(self.dtype.itemsize)

    def clear(self, block_ids: Tensor) -> None:
        """Make blocks zero in every layer; ``block_ids`` is int64, on the pool's device."""
        for stack in self._all_stacks:
            stack.index_fill_(1, block_ids, 0)

    @property
    def num_bytes(self) -> int:
        """Bytes of all pages."""
        tokens = (self.num_blocks + 2) * self.block_size
        return tokens * self.layout.bytes_per_token(self.dtype.itemsize)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # numpy asks the operating system for zeros, which come when touched; torch would write to
    # all of them now.
    size = math.prod(shape) * dtype.itemsize
    raw = np.zeros(size + _ALIGNMENT, dtype=np.uint8)
    first = -raw.ctypes.data % _ALIGNMENT
    return torch.from_numpy(raw[first : first + size]).view(dtype).view(shape)
