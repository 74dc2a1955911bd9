"""Which full block holds which tokens: an index over chains of blocks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

NO_PARENT = -1
"""The parent of a sequence's first block."""
MAX_ENDINGS = 32
"""Endings remembered behind one block; there are several after several choices."""


class Ending(NamedTuple):
    """Tokens behind a block, too few to fill another. Bit i of ``generated`` is set when the i-th
    of the ``length`` was sampled by a model."""

    length: int
    generated: int


NO_ENDING = Ending(0, 0)


@dataclass(slots=True)
class IndexedBlock:
    """A full block in the index. Bit i of ``generated`` is set when its i-th token was sampled by
    a model and clear when it was read from a prompt; whoever wrote the block first decides.
    ``endings`` are the tokens with which sequences ended behind it, with bits of the same kind; of
    these only the numbers are known, no values are kept."""

    parent: int
    token_ids: tuple[int, ...]
    generated: int
    num_children: int = 0
    endings: dict[tuple[int, ...], int] = field(default_factory=dict)


class PrefixIndex:
    """Finds the block that follows a parent block with given tokens.

    A block is known by its parent's number and its own tokens. The tokens themselves are
    compared, so two different prefixes can never be taken for one another; a parent's number
    stays meaningful because a block can only leave after its children have.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._blocks: dict[int, IndexedBlock] = {}
        self._by_tokens: dict[tuple[int, tuple[int, ...]], int] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._blocks

    def __getitem__(self, block_id: int) -> IndexedBlock:
        return self._blocks[block_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._blocks)

    def find(self, parent: int, token_ids: tuple[int, ...]) -> int | None:
        """The block with these tokens after ``parent``, if there is one."""
        return self._by_tokens.get((parent, token_ids))

    def match(self, token_ids: Sequence[int], max_tokens: int) -> list[int]:
        """The longest chain of blocks whose tokens begin ``token_ids``, within ``max_tokens``."""
        size = self.block_size
        chain: list[int] = []
        parent = NO_PARENT
        for start in range(0, min(max_tokens, len(token_ids)) - size + 1, size):
            block_id = self.find(parent, tuple(token_ids[start : start + size]))
            if block_id is None:
                break
            chain.append(block_id)
            parent = block_id
        return chain

    def insert(
        self, block_id: int, *, parent: int, token_ids: tuple[int, ...], generated: int
    ) -> None:
        """Add a full block after ``parent``, which is in the index. Neither the block nor its
        place may be taken."""
        assert block_id not in self._blocks, f"block {block_id} is indexed already"
        assert (parent, token_ids) not in self._by_tokens, "these tokens are indexed already"
        if parent != NO_PARENT:
            self._blocks[parent].num_children += 1
        self._blocks[block_id] = IndexedBlock(parent, token_ids, generated)
        self._by_tokens[parent, token_ids] = block_id

    def note_ending(self, block_id: int, token_ids: tuple[int, ...], generated: int) -> None:
        """Remember how a sequence ended behind a block: at most a block of tokens."""
        assert 0 < len(token_ids) <= self.block_size, "an ending fills no more than a block"
        endings = self._blocks[block_id].endings
        endings[token_ids] = endings.pop(token_ids, generated)
        if len(endings) > MAX_ENDINGS:
            del endings[next(iter(endings))]

    def find_ending(self, block_id: int, token_ids: Sequence[int]) -> Ending:
        """What of ``token_ids``, which follow a block, is the beginning of a remembered ending."""
        found = NO_ENDING
        for ending, generated in self._blocks[block_id].endings.items():
            pairs = zip(ending, token_ids, strict=False)
            length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            if length > found.length:
                found = Ending(length, generated & ((1 << length) - 1))
        return found

    def remove(self, block_id: int) -> None:
        """Take a block out. It must have no children: they could never be found again."""
        block = self._blocks[block_id]
        assert block.num_children == 0, f"block {block_id} still has children"
        if block.parent != NO_PARENT:
            self._blocks[block.parent].num_children -= 1
        del self._blocks[block_id]
        del self._by_tokens[block.parent, block.token_ids]

    def check_integrity(self) -> None:
        """Raise AssertionError if a block cannot be reached or is counted wrongly."""
        children = dict.fromkeys(self._blocks, 0)
        for block_id, block in self._blocks.items():
            if block.parent != NO_PARENT:
                if block.parent not in children:
                    raise AssertionError(f"block {block_id} has lost its parent {block.parent}")
                children[block.parent] += 1
            if self._by_tokens.get((block.parent, block.token_ids)) != block_id:
                raise AssertionError(f"block {block_id} is not found by its tokens")
            if len(block.token_ids) != self.block_size or block.generated >> self.block_size:
                raise AssertionError(f"block {block_id} is not a full block")
            self._check_endings(block_id, block)
        counted = {block_id: block.num_children for block_id, block in self._blocks.items()}
        if counted != children or len(self._by_tokens) != len(self._blocks):
            raise AssertionError(f"children {counted}, found {children}")

    def _check_endings(self, block_id: int, block: IndexedBlock) -> None:
        for token_ids, generated in block.endings.items():
            if not 0 < len(token_ids) <= self.block_size or generated >> len(token_ids):
                raise AssertionError(f"an ending behind block {block_id} has a wrong length")
        if len(block.endings) > MAX_ENDINGS:
            raise AssertionError(f"block {block_id} remembers {len(block.endings)} endings")
