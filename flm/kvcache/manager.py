"""The one door to the cache's book-keeping: match, reserve, commit, release."""

from collections.abc import Iterator, Sequence

from flm.kvcache.blocks import BlockAllocator
from flm.kvcache.prefix import NO_ENDING, NO_PARENT, Divergence, PrefixIndex


class Lease:
    """The blocks one sequence holds, in order of position. Valid from ``open`` to ``release``
    or ``discard``; only the manager changes it.

    The first ``num_cached`` positions were in the cache already when the lease was opened (a
    count of tokens, not of blocks, so that a shared part of a block can join later). The first
    ``num_indexed`` blocks are in the prefix index and must not be written. ``ending`` are the
    positions behind the cached ones that a known sequence ended with; their values are not there.
    ``diverged_at`` is the position at which the tokens left what else was cached, if they did.
    """

    __slots__ = (
        "_table",
        "block_ids",
        "diverged_at",
        "ending",
        "is_open",
        "num_cached",
        "num_indexed",
        "shares",
    )

    def __init__(self, block_ids: list[int], num_cached: int, *, shares: bool) -> None:
        self.block_ids = block_ids
        self.num_cached = num_cached
        self.ending = NO_ENDING
        self.diverged_at: int | None = None
        self.num_indexed = len(block_ids)
        self.shares = shares
        self.is_open = True
        self._table: tuple[int, ...] | None = None

    @property
    def table(self) -> tuple[int, ...]:
        """The block table. The same object as before unless a block came or was exchanged."""
        if self._table is None:
            self._table = tuple(self.block_ids)
        return self._table

    def touch(self) -> None:
        """Forget the tuple form: ``block_ids`` has changed."""
        self._table = None


class KVCacheManager:
    """Blocks and prefixes behind one set of verbs. Not thread-safe; knows no tensors.

    Two invariants keep the index reachable while blocks come and go. A sequence that holds an
    indexed block holds all of its ancestors. Blocks are let go last block first, so among idle
    blocks a child is always older than its parent, and giving up the oldest never orphans one.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if block_size < 1:
            raise ValueError(f"A block holds at least one token, not {block_size}.")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._allocator = BlockAllocator(num_blocks)
        self._index = PrefixIndex(block_size)
        self._leases: set[Lease] = set()

    # --- counts; nothing changes -----------------------------------------------------------

    @property
    def num_leases(self) -> int:
        """Leases that are open."""
        return len(self._leases)

    @property
    def num_available(self) -> int:
        """Blocks that ``reserve`` could give: the free ones and the idle ones."""
        return self._allocator.num_free + self._allocator.num_idle

    @property
    def max_tokens(self) -> int:
        """Positions in the whole pool."""
        return self.num_blocks * self.block_size

    @property
    def num_active_tokens(self) -> int:
        """Positions in blocks that a sequence holds."""
        return self._allocator.num_held * self.block_size

    @property
    def num_cached_tokens(self) -> int:
        """Positions in blocks that nobody holds and a later prompt could reuse."""
        return self._allocator.num_idle * self.block_size

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that cover ``num_tokens`` positions."""
        return -(-num_tokens // self.block_size)

    def cached_prefix_len(self, token_ids: Sequence[int], *, max_tokens: int | None = None) -> int:
        """Tokens that ``open`` would find. Not even the eviction order changes."""
        limit = len(token_ids) - 1 if max_tokens is None else max_tokens
        return len(self._index.match(token_ids, limit)) * self.block_size

    def divergence(self, token_ids: Sequence[int], max_cached: int = 1) -> Divergence | None:
        """Where the tokens leave what is cached though it goes on. None if no full block of them
        is cached, or if they or the cache end before they differ. At most ``max_cached`` of the
        cached tokens behind that place are told. Changes nothing."""
        chain = self._index.match(token_ids, len(token_ids) - 1)
        return self._divergence(chain, token_ids, max_cached)

    def _divergence(
        self, chain: list[int], token_ids: Sequence[int], max_cached: int = 1
    ) -> Divergence | None:
        if not chain:
            return None
        start = len(chain) * self.block_size
        behind = token_ids[start : start + self.block_size]
        found = self._index.find_divergence(chain[-1], behind, max_cached)
        return None if found is None else found._replace(at=start + found.at)

    def last_generated_run(self, lease: Lease, max_len: int | None) -> range:
        """Positions of the last unbroken run of generated tokens in the lease's reused prefix and
        the known ending behind it, at most the last ``max_len`` of them (None: all). Empty if there
        is none."""
        position = lease.num_cached + lease.ending.length - 1
        while position >= 0 and not self._is_generated(lease, position):
            bits = self._generated_at(lease, position // self.block_size)
            position -= 1 if bits else position % self.block_size + 1
        start = stop = position + 1
        while start > 0 and self._is_generated(lease, start - 1):
            if max_len is not None and stop - start >= max_len:
                break
            start -= 1
        return range(start, stop)

    def _is_generated(self, lease: Lease, position: int) -> bool:
        index, bit = divmod(position, self.block_size)
        return bool(self._generated_at(lease, index) >> bit & 1)

    def _generated_at(self, lease: Lease, index: int) -> int:
        """The bits of one of the lease's reused blocks, or of the ending behind them."""
        if index == lease.num_cached // self.block_size:
            return lease.ending.generated
        return self._index[lease.block_ids[index]].generated

    # --- the life of a lease ---------------------------------------------------------------

    def open(self, token_ids: Sequence[int], *, reads: bool = True, shares: bool = True) -> Lease:
        """Begin a lease, holding the longest known prefix of ``token_ids``.

        At least one token is left to compute, because its logits are wanted. With ``reads``
        False nothing is reused; with ``shares`` False ``commit`` will do nothing. Changes the
        reference counts of the blocks found.
        """
        chain = self._index.match(token_ids, len(token_ids) - 1) if reads else []
        for block_id in chain:
            self._allocator.acquire(block_id)
        lease = Lease(chain, len(chain) * self.block_size, shares=shares)
        if chain:
            behind = token_ids[lease.num_cached : lease.num_cached + self.block_size]
            lease.ending = self._index.find_ending(chain[-1], behind)
            divergence = self._divergence(chain, token_ids)
            lease.diverged_at = None if divergence is None else divergence.at
        self._leases.add(lease)
        return lease

    def reserve(self, lease: Lease, num_tokens: int, *, spare: int = 0) -> bool:
        """Extend the lease to cover ``num_tokens`` positions, giving up the oldest idle blocks
        where needed. All or nothing: False, and nothing changed, unless the pool has enough and
        ``spare`` blocks more."""
        missing = self.blocks_for(num_tokens) - len(lease.block_ids)
        if missing <= 0:
            return True
        if missing + spare > self.num_available:
            return False
        while self._allocator.num_free < missing:
            self._evict_oldest()
        lease.block_ids.extend(self._allocator.reserve() for _ in range(missing))
        lease.touch()
        return True

    def reserve_free(self, lease: Lease, num_tokens: int) -> int:
        """Extend the lease towards ``num_tokens`` positions at nobody's expense: with blocks in
        which nothing is kept. How many positions it covers then."""
        missing = max(self.blocks_for(num_tokens) - len(lease.block_ids), 0)
        for _ in range(min(missing, self._allocator.num_free)):
            lease.block_ids.append(self._allocator.reserve())
            lease.touch()
        return len(lease.block_ids) * self.block_size

    def commit(
        self, lease: Lease, token_ids: Sequence[int], num_tokens: int, *, prompt_len: int
    ) -> None:
        """Put the full blocks among the lease's first ``num_tokens`` positions, all computed,
        into the index; positions from ``prompt_len`` on count as generated.

        Where the same tokens are indexed already, the lease takes that block and frees its own,
        so its table may change. Without ``shares`` nothing happens.
        """
        if not lease.shares:
            return
        for index in range(lease.num_indexed, num_tokens // self.block_size):
            self._commit_block(lease, index, token_ids, prompt_len)
            lease.num_indexed += 1

    def _commit_block(
        self, lease: Lease, index: int, token_ids: Sequence[int], prompt_len: int
    ) -> None:
        start = index * self.block_size
        tokens = tuple(token_ids[start : start + self.block_size])
        parent = lease.block_ids[index - 1] if index > 0 else NO_PARENT
        own = lease.block_ids[index]
        known = self._index.find(parent, tokens)
        if known is None:
            generated = self._generated_bits(start, prompt_len)
            if start == lease.num_cached:
                generated |= lease.ending.generated
            self._index.insert(own, parent=parent, token_ids=tokens, generated=generated)
            return
        self._allocator.acquire(known)
        self._allocator.release(own, keep=False)
        lease.block_ids[index] = known
        lease.touch()

    def _generated_bits(self, start: int, prompt_len: int) -> int:
        num_prompt = min(max(prompt_len - start, 0), self.block_size)
        return (1 << self.block_size) - (1 << num_prompt)

    def note_ending(self, lease: Lease, token_ids: Sequence[int], *, prompt_len: int) -> None:
        """Remember the tokens behind the last committed block with which the sequence ends, all of
        ``token_ids`` being known, so that who continues it knows which of them were generated.
        The last one need not have been computed. Without ``shares`` nothing happens."""
        start = lease.num_indexed * self.block_size
        ending = tuple(token_ids[start:])
        generated = self._generated_bits(start, prompt_len) & ((1 << len(ending)) - 1)
        if lease.shares and lease.num_indexed > 0 and 0 < len(ending) <= self.block_size:
            if start == lease.num_cached:
                generated |= lease.ending.generated
            if generated:
                block_id = lease.block_ids[lease.num_indexed - 1]
                self._index.note_ending(block_id, ending, generated)

    def release(self, lease: Lease) -> None:
        """End the lease. Its indexed blocks stay findable until their space is needed."""
        self._close(lease)
        for block_id in reversed(lease.block_ids):
            self._allocator.release(block_id, keep=block_id in self._index)

    def discard(self, lease: Lease) -> None:
        """End the lease of a sequence whose values cannot be trusted: what nobody else holds or
        builds upon leaves the index too."""
        self._close(lease)
        for block_id in reversed(lease.block_ids):
            if self._is_only_ours(block_id):
                self._index.remove(block_id)
            self._allocator.release(block_id, keep=block_id in self._index)

    def _is_only_ours(self, block_id: int) -> bool:
        if block_id not in self._index or self._allocator.ref_count(block_id) > 1:
            return False
        return not self._index[block_id].children

    def _close(self, lease: Lease) -> None:
        assert lease.is_open, "the lease has ended already"
        lease.is_open = False
        self._leases.remove(lease)

    def _evict_oldest(self) -> None:
        block_id = self._allocator.oldest_idle
        self._index.remove(block_id)
        self._allocator.drop(block_id)

    def clear(self) -> None:
        """Forget every idle block."""
        while self._allocator.num_idle > 0:
            self._evict_oldest()

    # --- proof -----------------------------------------------------------------------------

    def check_integrity(self) -> None:
        """Raise AssertionError if a block is leaked, shared wrongly, or indexed wrongly."""
        self._allocator.check_integrity(self._holders())
        self._index.check_integrity()
        self._check_idle()
        for lease in self._leases:
            self._check_lease(lease)

    def _holders(self) -> Iterator[int]:
        for lease in self._leases:
            yield from lease.block_ids

    def _check_idle(self) -> None:
        age = {block_id: place for place, block_id in enumerate(self._allocator.idle_blocks())}
        for block_id in age:
            if block_id not in self._index:
                raise AssertionError(f"block {block_id} is kept, but nothing can find it")
        for block_id in self._index:
            parent = self._index[block_id].parent
            if parent in age and age.get(block_id, len(age)) > age[parent]:
                raise AssertionError(f"block {parent} would be given up before {block_id}")

    def _check_lease(self, lease: Lease) -> None:
        if len(set(lease.block_ids)) != len(lease.block_ids):
            raise AssertionError(f"a block appears twice in {lease.block_ids}")
        parent = NO_PARENT
        for place, block_id in enumerate(lease.block_ids):
            if (block_id in self._index) != (place < lease.num_indexed):
                raise AssertionError(f"block {block_id} at {place} is indexed wrongly")
            if place < lease.num_indexed and self._index[block_id].parent != parent:
                raise AssertionError(f"block {block_id} does not follow {parent}")
            if place >= lease.num_indexed and self._allocator.ref_count(block_id) != 1:
                raise AssertionError(f"block {block_id} can be written by two sequences")
            parent = block_id
