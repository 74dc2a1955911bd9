"""Decode steps that are recorded once and then run again whole, as CUDA graphs are.

A step launches hundreds of small kernels, and on a fast device launching them takes longer than
computing them. Recorded, they are one launch; but a recording fixes every shape and address. So
batches are filled up to a few sizes and tables to a few widths, each with tensors of its own.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import torch
from torch import Tensor

from flm.engine.decode import DecodeRunner
from flm.engine.step import DecodeRow
from flm.kvcache.pool import KVPool
from flm.kvcache.view import StaticDecodeView
from flm.log import logger
from flm.models.attention import recordable_attention
from flm.prefill.runner import CausalModel

MAX_GRAPHS: Final = 64
MAX_GATHERED_BYTES: Final = 2**28
"""Keys and values of a layer that a recorded step may gather. They bound the memory that all
recordings share; where more is gathered, that takes longer than the launches."""
FIRST_RECORDED: Final = 8
"""A size is recorded when it is needed for this time: recording takes as long as dozens of
steps, and some sizes last for a few only."""
_MIN_WIDTH: Final = 16
_TOLERANCE: Final = 0.02

Step = Callable[[], Tensor]


class Capture(Protocol):
    """Whatever can record a step."""

    def __call__(self, step: Step, /) -> Step:
        """Run ``step`` a few times, and record it. What is returned does the same work over the
        same tensors; its result is valid until the next one of any recording. May raise."""


@dataclass(frozen=True, slots=True)
class StepSize:
    """Rows of a batch, and blocks in each of their tables."""

    num_rows: int
    width: int


class StaticStep:
    """A decode forward over tensors that stay where they are; ``fill`` changes what is in them."""

    def __init__(self, model: CausalModel, pool: KVPool, size: StepSize) -> None:
        num_rows, width = size.num_rows, size.width
        self._model = model
        self._pool = pool
        # Token ids, positions and tables one behind the other, so that one copy brings them over.
        self._host = np.zeros(num_rows * (2 + width), dtype=np.int64)
        self._inputs = torch.zeros(len(self._host), dtype=torch.int64, device=pool.device)
        self._tables = self._host[2 * num_rows :].reshape(num_rows, width)
        self._held: list[tuple[int, ...]] = [()] * num_rows
        self.fill(())

    def fill(self, rows: Sequence[DecodeRow]) -> None:
        """Take these rows, at most as many as the size has; the others write to the pool's scratch
        block. Blocks that rows have just taken are cleared."""
        num_rows, block_size = len(self._held), self._pool.block_size
        self._host[: 2 * num_rows] = 0
        self._host[: len(rows)] = [row.token_id for row in rows]
        self._host[num_rows : num_rows + len(rows)] = [row.position for row in rows]
        padding = [(self._pool.scratch_block,)] * (num_rows - len(rows))
        self._hold([*(row.block_table for row in rows), *padding])
        self._inputs.copy_(torch.from_numpy(self._host))
        fresh = [
            row.block_table[row.position // block_size]
            for row in rows
            if row.position % block_size == 0
        ]
        if fresh:
            self._pool.clear(torch.tensor(fresh, device=self._pool.device))

    def _hold(self, tables: Sequence[tuple[int, ...]]) -> None:
        """A row's table is copied only when it is another object than last time."""
        width = self._tables.shape[1]
        for place, table in enumerate(tables):
            if self._held[place] is not table:
                # Blocks held in advance may go beyond; what stands behind the table is not used.
                self._tables[place, : len(table)] = table[:width]
                self._held[place] = table

    def __call__(self) -> Tensor:
        """Logits of all rows, [num_rows, vocab], float32."""
        num_rows = len(self._held)
        token_ids, positions = self._inputs[: 2 * num_rows].view(2, num_rows)
        tables = self._inputs[2 * num_rows :].view(num_rows, -1)
        view = StaticDecodeView(self._pool, tables, positions)
        with recordable_attention(self._pool.device):
            return self._model.logits(self._model.hidden(token_ids, positions, view))


@dataclass(frozen=True, slots=True)
class _Recording:
    step: StaticStep
    replay: Step


class GraphedDecode:
    """Runs the decode rows of a step as one batch, from a recording where there is one.

    A recording is made when its size has been needed a few times, and tried before it is used. If
    one cannot be made or is wrong, a warning says so and everything is launched one by one from
    then on: that costs speed, and nothing else. ``max_rows`` is the largest batch there will be.
    """

    def __init__(
        self,
        model: CausalModel,
        pool: KVPool,
        capture: Capture,
        *,
        max_rows: int,
        first_recorded: int = FIRST_RECORDED,
        max_gathered_bytes: int = MAX_GATHERED_BYTES,
    ) -> None:
        self._model = model
        self._pool = pool
        self._capture: Capture | None = capture
        self._max_rows = max_rows
        self._first_recorded = first_recorded
        self._max_gathered_bytes = max_gathered_bytes
        self._eager = DecodeRunner(model, pool)
        self._recordings: dict[StepSize, _Recording] = {}
        self._uses: Counter[StepSize] = Counter()

    def run(self, rows: Sequence[DecodeRow]) -> Tensor:
        """Logits [B, vocab], float32, in the order of ``rows``."""
        if self._capture is not None:
            try:
                logits = self._recorded(rows, self._capture)
            except Exception as error:  # noqa: BLE001 - whatever it was, rows can do without
                self._give_up(error)
            else:
                if logits is not None:
                    return logits
        return self._eager.run(rows)

    def _recorded(self, rows: Sequence[DecodeRow], capture: Capture) -> Tensor | None:
        """Logits of the rows; None where there is no recording of their size, and none is due."""
        size = self._size(rows)
        recording = self._recordings.get(size)
        if recording is None:
            return self._record(size, rows, capture) if self._is_due(size) else None
        recording.step.fill(rows)
        return recording.replay()[: len(rows)].clone()

    def _size(self, rows: Sequence[DecodeRow]) -> StepSize:
        """The smallest size that holds the rows."""
        needed = max(row.position for row in rows) // self._pool.block_size + 1
        num_rows = min(_power_of_two(len(rows)), max(self._max_rows, len(rows)))
        # No table is longer than the pool.
        width = min(_power_of_two(max(needed, _MIN_WIDTH)), max(self._pool.num_blocks, needed))
        return StepSize(num_rows, width)

    def _is_due(self, size: StepSize) -> bool:
        if len(self._recordings) >= MAX_GRAPHS or not self._is_small(size):
            return False
        self._uses[size] += 1
        return self._uses[size] >= self._first_recorded

    def _is_small(self, size: StepSize) -> bool:
        pool = self._pool
        largest = max(layer.num_kv_heads * layer.head_dim for layer in pool.layout.layers)
        num_positions = size.num_rows * size.width * pool.block_size
        return 2 * num_positions * largest * pool.dtype.itemsize <= self._max_gathered_bytes

    def _record(self, size: StepSize, rows: Sequence[DecodeRow], capture: Capture) -> Tensor:
        """Record a step and try it on the rows; their logits.

        Raises:
            RuntimeError: the recording gives others than the step itself.
        """
        step = StaticStep(self._model, self._pool, size)
        # Nobody's rows are in it yet, so a recording that is deaf to its tensors would give
        # other logits than these rows have, and write to the scratch block alone.
        replay = capture(step)
        step.fill(rows)
        found = replay()[: len(rows)].clone()
        # Last, so that what stays in the cache is the step's own.
        wanted = step()[: len(rows)]
        if not _agree(found, wanted):
            raise RuntimeError(
                f"a graph of {size.num_rows} rows gives other logits than its kernels one by one"
            )
        self._recordings[size] = _Recording(step, replay)
        return wanted

    def _give_up(self, error: Exception) -> None:
        self._capture = None
        self._recordings.clear()
        reason = str(error).partition("\n")[0] or type(error).__name__
        logger.warning("Decoding goes on without CUDA graphs, which is slower: %s", reason)


def _power_of_two(at_least: int) -> int:
    return 1 << (at_least - 1).bit_length()


def _agree(found: Tensor, wanted: Tensor) -> bool:
    """Whether two tensors of logits, [B, vocab], are the same but for rounding, row by row."""
    largest = wanted.nan_to_num(0, 0, 0).abs().amax(dim=1, keepdim=True)
    is_near = (found - wanted).abs() <= _TOLERANCE * largest
    # A model may give what is no number; a recording of it has to do the same.
    return bool((is_near | (found == wanted) | (found.isnan() & wanted.isnan())).all())
