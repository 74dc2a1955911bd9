"""The tensors behind the blocks."""

import math
from typing import Final

import numpy as np
import torch
from torch import Tensor

from flm.kvcache.layout import CacheLayout

_ALIGNMENT: Final = 64
"""Bytes of a cache line: what begins elsewhere is read in two."""


class KVPool:
    """Keys and values of every layer, in pages of ``block_size`` positions.

    ``keys[layer]`` and ``values[layer]`` are [num_blocks + 1, block_size, num_kv_heads,
    head_dim]; in ``torch.int8`` the last dimension has room for a scale as well, and how a page is
    divided is the affair of the kernels that fill it. The last page, ``null_block``, belongs to
    nobody and stays zero: shorter rows of a batch are padded with it. Memory is zero at first; on
    the CPU a page of it is taken only when it is first written to.
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
        self.dtype = dtype
        self.device = torch.device(device)
        self.keys = self._pages()
        self.values = self._pages()
        # The same memory as one row per position: [(num_blocks + 1) * block_size, heads, dim].
        self.flat_keys = tuple(pages.flatten(0, 1) for pages in self.keys)
        self.flat_values = tuple(pages.flatten(0, 1) for pages in self.values)

    def _pages(self) -> tuple[Tensor, ...]:
        shape = (self.num_blocks + 1, self.block_size)
        return tuple(
            _zeros(
                (*shape, layer.num_kv_heads, layer.vector_len(self.dtype.itemsize)),
                self.dtype,
                self.device,
            )
            for layer in self.layout.layers
        )

    @property
    def num_bytes(self) -> int:
        """Bytes of all pages."""
        tokens = (self.num_blocks + 1) * self.block_size
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
