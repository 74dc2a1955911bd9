"""Who holds which block: reference counts, the free list, and the line of idle blocks."""

from collections import OrderedDict
from collections.abc import Iterable


class BlockAllocator:
    """Blocks ``0 .. num_blocks - 1``, each in exactly one of three states.

    *Free*: nobody holds it and its content means nothing. *Held*: its reference count is at
    least 1. *Idle*: nobody holds it, but its content is kept until the space is needed; idle
    blocks stand in the order in which they were let go, oldest first.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"A pool needs at least one block, not {num_blocks}.")
        self.num_blocks = num_blocks
        self._ref_counts = [0] * num_blocks
        # A stack with the lowest number on top: fresh sequences get neighbouring blocks, which
        # can be read without a copy.
        self._free = list(range(num_blocks - 1, -1, -1))
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def num_free(self) -> int:
        """Blocks whose content means nothing."""
        return len(self._free)

    @property
    def num_idle(self) -> int:
        """Blocks that nobody holds but whose content is kept."""
        return len(self._idle)

    @property
    def num_held(self) -> int:
        """Blocks with at least one holder."""
        return self.num_blocks - len(self._free) - len(self._idle)

    @property
    def oldest_idle(self) -> int:
        """The idle block that was let go first. There must be one."""
        return next(iter(self._idle))

    def ref_count(self, block_id: int) -> int:
        """How many holders a block has."""
        return self._ref_counts[block_id]

    def reserve(self) -> int:
        """Take a free block; its reference count becomes 1. There must be one."""
        block_id = self._free.pop()
        self._ref_counts[block_id] = 1
        return block_id

    def acquire(self, block_id: int) -> None:
        """Hold an idle or held block once more."""
        if self._ref_counts[block_id] == 0:
            del self._idle[block_id]
        self._ref_counts[block_id] += 1

    def release(self, block_id: int, *, keep: bool) -> None:
        """Let go of a held block. Without other holders it becomes idle (``keep``) or free."""
        count = self._ref_counts[block_id] - 1
        assert count >= 0, f"block {block_id} is released more often than it was held"
        self._ref_counts[block_id] = count
        if count > 0:
            return
        if keep:
            self._idle[block_id] = None
        else:
            self._free.append(block_id)

    def drop(self, block_id: int) -> None:
        """Make an idle block free: its content is given up."""
        del self._idle[block_id]
        self._free.append(block_id)

    def idle_blocks(self) -> tuple[int, ...]:
        """The idle blocks, oldest first."""
        return tuple(self._idle)

    def check_integrity(self, holders: Iterable[int]) -> None:
        """Raise AssertionError unless ``holders`` (a block once per holder) explain every count
        and each block is in exactly one state."""
        expected = [0] * self.num_blocks
        for block_id in holders:
            expected[block_id] += 1
        if expected != self._ref_counts:
            raise AssertionError(f"reference counts {self._ref_counts}, holders {expected}")
        held = [block_id for block_id, count in enumerate(self._ref_counts) if count > 0]
        if sorted([*held, *self._free, *self._idle]) != list(range(self.num_blocks)):
            raise AssertionError(
                f"held {held}, free {self._free} and idle {list(self._idle)} overlap or miss some"
            )
