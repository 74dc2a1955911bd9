"""Which full block holds which tokens: an index over chains of blocks."""

from bisect import bisect_left, insort
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


class Divergence(NamedTuple):
    """Where a prompt leaves what is cached: its token at index ``at`` differs from the first of
    ``cached_ids``, the tokens with which the cached prefix goes on there."""

    at: int
    cached_ids: tuple[int, ...]


@dataclass(slots=True)
class IndexedBlock:
    """A full block in the index. Bit i of ``generated`` is set when its i-th token was sampled by
    a model and clear when it was read from a prompt; whoever wrote the block first decides.
    ``endings`` are the tokens with which sequences ended behind it, with bits of the same kind; of
    these only the numbers are known, no values are kept. ``children`` are the tokens of the blocks
    that follow, sorted."""

    parent: int
    token_ids: tuple[int, ...]
    generated: int
    children: list[tuple[int, ...]] = field(default_factory=list)
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
            insort(self._blocks[parent].children, token_ids)
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
            length = _num_common(ending, token_ids)
            if length > found.length:
                found = Ending(length, generated & ((1 << length) - 1))
        return found

    def find_divergence(
        self, block_id: int, token_ids: Sequence[int], max_cached: int = 1
    ) -> Divergence | None:
        """How ``token_ids``, which follow a block, leave the child with which they have most in
        common; ``at`` counts from the first of them. None without a child, or when the tokens end
        before they differ. ``cached_ids`` are at most ``max_cached``."""
        wanted = tuple(token_ids[: self.block_size])
        children = self._blocks[block_id].children
        place = bisect_left(children, wanted)
        # In sorted order, nobody has more in common with a place than its neighbours.
        near = children[max(place - 1, 0) : place + 1]
        if not near:
            return None
        common, tokens = max((_num_common(child, wanted), child) for child in near)
        if common == len(wanted):
            return None
        return Divergence(common, self._continuation(block_id, tokens, common, max_cached))

    def _continuation(
        self, parent: int, token_ids: tuple[int, ...], start: int, limit: int
    ) -> tuple[int, ...]:
        """At most ``limit`` tokens of a child from ``start`` on, and of a line of its children."""
        found = list(token_ids[start:])
        while len(found) < limit:
            parent = self._by_tokens[parent, token_ids]
            children = self._blocks[parent].children
            if not children:
                break
            token_ids = children[0]
            found += token_ids
        return tuple(found[:limit])

    def remove(self, block_id: int) -> None:
        """Take a block out. It must have no children: they could never be found again."""
        block = self._blocks[block_id]
        assert not block.children, f"block {block_id} still has children"
        if block.parent != NO_PARENT:
            siblings = self._blocks[block.parent].children
            del siblings[bisect_left(siblings, block.token_ids)]
        del self._blocks[block_id]
        del self._by_tokens[block.parent, block.token_ids]

    def check_integrity(self) -> None:
        """Raise AssertionError if a block cannot be reached or is counted wrongly."""
        children: dict[int, list[tuple[int, ...]]] = {block_id: [] for block_id in self._blocks}
        for block_id, block in self._blocks.items():
            if block.parent != NO_PARENT:
                if block.parent not in children:
                    raise AssertionError(f"block {block_id} has lost its parent {block.parent}")
                children[block.parent].append(block.token_ids)
            if self._by_tokens.get((block.parent, block.token_ids)) != block_id:
                raise AssertionError(f"block {block_id} is not found by its tokens")
            if len(block.token_ids) != self.block_size or block.generated >> self.block_size:
                raise AssertionError(f"block {block_id} is not a full block")
            self._check_endings(block_id, block)
        for block_id, block in self._blocks.items():
            if block.children != sorted(children[block_id]):
                raise AssertionError(f"block {block_id} does not know its children")
        if len(self._by_tokens) != len(self._blocks):
            raise AssertionError("tokens are known of blocks that are not there")

    def _check_endings(self, block_id: int, block: IndexedBlock) -> None:
        for token_ids, generated in block.endings.items():
            if not 0 < len(token_ids) <= self.block_size or generated >> len(token_ids):
                raise AssertionError(f"an ending behind block {block_id} has a wrong length")
        if len(block.endings) > MAX_ENDINGS:
            raise AssertionError(f"block {block_id} remembers {len(block.endings)} endings")


def _num_common(left: Sequence[int], right: Sequence[int]) -> int:
    """Tokens with which both begin."""
    pairs = zip(left, right, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
