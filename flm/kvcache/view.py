"""The cache as a model sees it in one forward: where its rows go, and what they may look at.

Index tensors are made once per view and serve all layers. Past the end of a sequence, the rest
of its last block is zero: what a former holder left there, possibly not a number, could
otherwise reach a padded batch through a weight of zero. Where sequences guess tokens ahead, what
was guessed wrongly stands there until it is written over; padded batches are not run then.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flm.kvcache.pool import KVPool


class KVView(Protocol):
    """What every view offers a layer. Rows are those of this forward, in its order."""

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store the rows' keys and values, [T, num_kv_heads, head_dim] each."""


def _is_run(block_ids: Sequence[int]) -> bool:
    """True when the blocks are neighbours in memory, in order."""
    first = block_ids[0]
    if block_ids[-1] - first != len(block_ids) - 1:
        return False
    return all(block_id == first + place for place, block_id in enumerate(block_ids))


class ChunkView:
    """One sequence; its rows are positions ``start`` to ``start + num_rows - 1``.

    ``length`` = ``start + num_rows`` positions are visible. ``block_table`` covers them.
    """

    def __init__(self, pool: KVPool, block_table: Sequence[int], start: int, num_rows: int) -> None:
        size = pool.block_size
        self.pool = pool
        self.start = start
        self.length = start + num_rows
        num_blocks = -(-self.length // size)
        if num_rows < 1 or num_blocks > len(block_table):
            raise ValueError(f"{len(block_table)} blocks do not cover {self.length} positions.")
        block_ids = block_table[:num_blocks]
        self._end_of_last_block = (block_ids[-1] + 1) * size
        self._tail = num_blocks * size - self.length
        self._first_slot: int | None = block_ids[0] * size if _is_run(block_ids) else None
        if self._first_slot is None:
            self._blocks = torch.tensor(block_ids, dtype=torch.int64, device=pool.device)
            self._slots = self._slots_of(block_ids)

    def _slots_of(self, block_ids: Sequence[int]) -> Tensor:
        """Rows of the flat pages that this forward writes, [T]."""
        size, device = self.pool.block_size, self.pool.device
        first_block = self.start // size
        written = torch.tensor(block_ids[first_block:], dtype=torch.int64, device=device)
        offsets = torch.arange(size, dtype=torch.int64, device=device)
        slots = (written[:, None] * size + offsets).flatten()
        return slots[self.start - first_block * size : self.length - first_block * size]

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store the rows' keys and values, [T, num_kv_heads, head_dim] each."""
        self._write(self.pool.flat_keys[layer], keys)
        self._write(self.pool.flat_values[layer], values)

    def _write(self, flat: Tensor, rows: Tensor) -> None:
        if self._first_slot is None:
            flat.index_copy_(0, self._slots, rows.to(flat.dtype))
        else:
            flat[self._first_slot + self.start : self._first_slot + self.length] = rows
        if self._tail > 0:
            flat[self._end_of_last_block - self._tail : self._end_of_last_block] = 0

    def gather(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of all visible positions, [length, num_kv_heads, head_dim] each.

        May share the pool's memory: do not write to them, and use them before the next forward.
        """
        pool = self.pool
        if self._first_slot is not None:
            end = self._first_slot + self.length
            return (
                pool.flat_keys[layer][self._first_slot : end],
                pool.flat_values[layer][self._first_slot : end],
            )
        keys = pool.keys[layer].index_select(0, self._blocks).flatten(0, 1)
        values = pool.values[layer].index_select(0, self._blocks).flatten(0, 1)
        return keys[: self.length], values[: self.length]


class TablePacker:
    """Block tables of a batch as one tensor, kept from step to step.

    A row is copied only when its table is another object than last time, so a step costs nothing
    per block for sequences that did not grow. Short rows are filled up with the null block.
    """

    _WIDTH_STEP = 16

    def __init__(self, pool: KVPool) -> None:
        self._pool = pool
        self._rows: list[tuple[int, ...]] = []
        self._packed: npt.NDArray[np.int64] = np.empty((0, 0), dtype=np.int64)

    def pack(self, tables: Sequence[tuple[int, ...]]) -> Tensor:
        """The tables, [B, width]. Valid until the next call."""
        width = max(len(table) for table in tables)
        if len(tables) != len(self._rows) or width > self._packed.shape[1]:
            rounded = -(-width // self._WIDTH_STEP) * self._WIDTH_STEP
            self._packed = np.empty((len(tables), rounded), dtype=np.int64)
            self._rows = [()] * len(tables)
        for place, table in enumerate(tables):
            if self._rows[place] is not table:
                self._packed[place, : len(table)] = table
                self._packed[place, len(table) :] = self._pool.null_block
                self._rows[place] = table
        return torch.from_numpy(self._packed).to(self._pool.device)


class DecodeView:
    """B sequences, one row each: the newest position of each of them.

    ``block_tables`` is [B, width], the rest of a row being anything; ``lengths`` are the
    positions each row may look at, its own included.
    """

    def __init__(self, pool: KVPool, block_tables: Tensor, lengths: Sequence[int]) -> None:
        size, device = pool.block_size, pool.device
        self.pool = pool
        self.lengths = tuple(lengths)
        self.max_length = max(self.lengths)
        self.length_tensor = torch.tensor(self.lengths, dtype=torch.int64, device=device)  # [B]
        last = self.length_tensor - 1
        places = torch.arange(-(-self.max_length // size), device=device)  # [max blocks]
        tables = block_tables[:, : len(places)]  # [B, max blocks]
        # Blocks held in advance have not been written yet.
        is_used = places <= (last // size)[:, None]
        self.block_tables = torch.where(is_used, tables, pool.null_block)
        newest = self.block_tables.gather(1, (last // size)[:, None])[:, 0]  # [B]
        self.slots = newest * size + last % size  # [B], rows of the flat pages
        fresh = [row for row, length in enumerate(self.lengths) if length % size == 1 % size]
        self._fresh = newest[fresh] if fresh else None
        self._mask: Tensor | None = None
        self._runs: dict[int, int | None] = {}

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store the rows' keys and values, [B, num_kv_heads, head_dim] each."""
        pool = self.pool
        if self._fresh is not None:
            pool.keys[layer].index_fill_(0, self._fresh, 0)
            pool.values[layer].index_fill_(0, self._fresh, 0)
        _store(pool, layer, self.slots, keys, values)

    def gather(self, layer: int, row: int) -> tuple[Tensor, Tensor]:
        """Keys and values one row may look at, [lengths[row], num_kv_heads, head_dim] each.

        May share the pool's memory: do not write to them, and use them before the next forward.
        """
        pool, length = self.pool, self.lengths[row]
        first = self._first_slot(row)
        if first is not None:
            end = first + length
            return pool.flat_keys[layer][first:end], pool.flat_values[layer][first:end]
        blocks = self.block_tables[row, : -(-length // pool.block_size)]
        keys = pool.keys[layer].index_select(0, blocks).flatten(0, 1)
        values = pool.values[layer].index_select(0, blocks).flatten(0, 1)
        return keys[:length], values[:length]

    def _first_slot(self, row: int) -> int | None:
        """Where the row begins in the flat pages; None when its blocks are scattered."""
        if row not in self._runs:
            size = self.pool.block_size
            block_ids = self.block_tables[row, : -(-self.lengths[row] // size)].tolist()
            self._runs[row] = block_ids[0] * size if _is_run(block_ids) else None
        return self._runs[row]

    def gather_padded(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of all rows, [B, max(lengths), num_kv_heads, head_dim] each. Positions
        past a row's length are zero, where no tokens are guessed ahead."""
        keys, values = _gathered(self.pool, layer, self.block_tables)
        return keys[:, : self.max_length], values[:, : self.max_length]

    def padding_mask(self) -> Tensor:
        """True where a position belongs to its row, bool [B, max(lengths)]."""
        if self._mask is None:
            positions = torch.arange(self.max_length, device=self.pool.device)
            self._mask = positions < self.length_tensor[:, None]
        return self._mask


class StaticDecodeView:
    """B sequences, one row each, as numbers in tensors that may change from run to run.

    ``block_tables`` is [B, W], the rest of a row being anything; ``positions`` [B], each below
    W * block_size, are where the newest of each row stands, and it looks at all up to there. Shapes
    follow from these shapes alone and nothing is read back from the device, so a forward over the
    view can be recorded once and run again. Whoever fills the tensors clears the blocks that a row
    has just taken (``KVPool.clear``).
    """

    def __init__(self, pool: KVPool, block_tables: Tensor, positions: Tensor) -> None:
        size, width = pool.block_size, block_tables.shape[1]
        self.pool = pool
        newest = (positions // size)[:, None]  # [B, 1], places in the tables
        is_unused = torch.arange(width, device=pool.device) > newest
        self.block_tables = block_tables.masked_fill(is_unused, pool.null_block)
        self.slots = block_tables.gather(1, newest)[:, 0] * size + positions % size  # [B]
        self._mask = torch.arange(width * size, device=pool.device) <= positions[:, None]

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store the rows' keys and values, [B, num_kv_heads, head_dim] each."""
        _store(self.pool, layer, self.slots, keys, values)

    def gather_padded(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of all rows, [B, W * block_size, num_kv_heads, head_dim] each. Positions
        past a row's own are zero, where no tokens are guessed ahead."""
        return _gathered(self.pool, layer, self.block_tables)

    def padding_mask(self) -> Tensor:
        """True where a position belongs to its row, bool [B, W * block_size]."""
        return self._mask


def _store(pool: KVPool, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
    """One row each, [B, num_kv_heads, head_dim], to rows ``slots`` [B] of the flat pages."""
    pool.flat_keys[layer].index_copy_(0, slots, keys.to(pool.dtype))
    pool.flat_values[layer].index_copy_(0, slots, values.to(pool.dtype))


def _gathered(pool: KVPool, layer: int, block_tables: Tensor) -> tuple[Tensor, Tensor]:
    """The blocks of each row one behind the other, [B, W * block_size, num_kv_heads, head_dim]."""
    num_rows, width = block_tables.shape
    block_ids = block_tables.flatten()
    keys, values = (
        pages.index_select(0, block_ids).view(num_rows, width * pool.block_size, *pages.shape[2:])
        for pages in (pool.keys[layer], pool.values[layer])
    )
    return keys, values
