import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from flm.kvcache.manager import KVCacheManager, Lease

SIZE = 4


def computed(
    cache: KVCacheManager, token_ids: list[int], *, prompt_len: int | None = None
) -> Lease:
    """A lease over all of ``token_ids``, everything computed and committed."""
    lease = cache.open(token_ids)
    assert cache.reserve(lease, len(token_ids))
    length = len(token_ids) if prompt_len is None else prompt_len
    cache.commit(lease, token_ids, len(token_ids), prompt_len=length)
    return lease


def test_a_released_prefix_is_found_again() -> None:
    cache = KVCacheManager(8, SIZE)
    tokens = list(range(11))
    first = computed(cache, tokens)
    blocks = first.table
    cache.release(first)
    second = cache.open(tokens)
    assert second.num_cached == 8
    assert second.table == blocks[:2]
    cache.release(second)
    cache.check_integrity()


def test_free_blocks_can_be_had_at_nobodys_expense() -> None:
    cache = KVCacheManager(6, SIZE)
    tokens = list(range(8))
    cache.release(computed(cache, tokens))
    lease = cache.open([50])
    assert cache.reserve(lease, 1)
    table = lease.table
    assert cache.reserve_free(lease, SIZE) == SIZE
    assert lease.table is table
    assert cache.reserve_free(lease, SIZE + 1) == 2 * SIZE
    # Two blocks keep a prefix: they are not taken.
    assert cache.reserve_free(lease, 9 * SIZE) == 4 * SIZE
    assert cache.cached_prefix_len([*tokens, 9]) == 8
    cache.check_integrity()
    cache.release(lease)
    cache.check_integrity()
    assert cache.num_available == 6


def test_a_lease_says_where_its_tokens_left_the_cache() -> None:
    cache = KVCacheManager(16, SIZE)
    cache.release(computed(cache, list(range(14))))
    changed = [*range(6), 99, *range(7, 14)]
    assert cache.divergence(changed, 3) == (6, (6, 7, 8))
    lease = cache.open(changed)
    assert (lease.num_cached, lease.diverged_at) == (4, 6)
    assert cache.open(changed, reads=False).diverged_at is None
    # Nothing in common; all in common; longer than what is cached; shorter.
    assert cache.divergence([99, *range(1, 14)]) is None
    for tokens in (range(14), range(12), [*range(12), 99, 98], range(6), range(4), []):
        assert cache.divergence(list(tokens)) is None
    cache.check_integrity()


def test_one_token_is_always_left_to_compute() -> None:
    cache = KVCacheManager(8, SIZE)
    tokens = list(range(8))
    cache.release(computed(cache, tokens))
    assert cache.cached_prefix_len(tokens) == 4
    assert cache.cached_prefix_len([*tokens, 9]) == 8
    assert cache.open(tokens).num_cached == 4


def test_running_sequences_share_what_is_committed() -> None:
    cache = KVCacheManager(8, SIZE)
    tokens = list(range(9))
    first = computed(cache, tokens)
    second = cache.open(tokens)
    assert second.table == first.table[:2]
    assert cache.num_active_tokens == 3 * SIZE
    cache.release(first)
    cache.check_integrity()
    assert cache.num_active_tokens == 2 * SIZE


def test_without_reading_nothing_is_reused_and_without_sharing_nothing_is_left() -> None:
    cache = KVCacheManager(8, SIZE)
    tokens = list(range(9))
    cache.release(computed(cache, tokens))
    unread = cache.open(tokens, reads=False)
    assert unread.num_cached == 0
    cache.release(unread)
    private = cache.open([50, *tokens], shares=False)
    assert cache.reserve(private, 10)
    cache.commit(private, [50, *tokens], 10, prompt_len=10)
    cache.release(private)
    assert cache.cached_prefix_len([50, *tokens]) == 0
    cache.check_integrity()


def test_reserve_is_all_or_nothing() -> None:
    cache = KVCacheManager(4, SIZE)
    lease = cache.open([1])
    assert not cache.reserve(lease, 17)
    assert lease.table == ()
    assert not cache.reserve(lease, 13, spare=1)
    assert cache.reserve(lease, 13)
    assert cache.num_available == 0


def test_the_table_is_the_same_object_until_it_changes() -> None:
    cache = KVCacheManager(4, SIZE)
    lease = cache.open([1])
    cache.reserve(lease, 3)
    table = lease.table
    cache.reserve(lease, 4)
    assert lease.table is table
    cache.reserve(lease, 5)
    assert lease.table == (*table, 1)


def test_the_least_recently_used_prefix_goes_first_and_its_end_before_its_beginning() -> None:
    cache = KVCacheManager(4, SIZE)
    old, new = list(range(8)), list(range(10, 18))
    cache.release(computed(cache, old))
    cache.release(computed(cache, new))
    cache.release(cache.open([*old, 99]))
    lease = cache.open([77])
    assert cache.reserve(lease, 4)
    assert cache.cached_prefix_len([*old, 99]) == 8
    assert cache.cached_prefix_len([*new, 99]) == 4
    cache.check_integrity()


def test_looking_does_not_change_the_order() -> None:
    cache = KVCacheManager(2, SIZE)
    old, new = [1, 2, 3, 4], [5, 6, 7, 8]
    cache.release(computed(cache, old))
    cache.release(computed(cache, new))
    assert cache.cached_prefix_len([*old, 0]) == 4
    cache.reserve(cache.open([0]), 1)
    assert cache.cached_prefix_len([*old, 0]) == 0
    assert cache.cached_prefix_len([*new, 0]) == 4


def test_the_same_block_computed_twice_is_kept_once() -> None:
    cache = KVCacheManager(8, SIZE)
    tokens = list(range(9))
    first, second = cache.open(tokens), cache.open(tokens)
    for lease in (first, second):
        assert cache.reserve(lease, 9)
    cache.commit(first, tokens, 9, prompt_len=9)
    before = second.table
    cache.commit(second, tokens, 9, prompt_len=9)
    assert second.table[:2] == first.table[:2]
    assert second.table[2] == before[2]
    assert cache.num_available == 4
    cache.check_integrity()
    cache.release(first)
    cache.check_integrity()
    cache.release(second)
    cache.check_integrity()


def test_a_continuation_of_a_block_computed_twice_can_be_reached() -> None:
    cache = KVCacheManager(8, SIZE)
    prompt = list(range(4))
    cache.release(computed(cache, prompt))
    reply = [*prompt, 10, 11, 12, 13]
    cache.release(computed(cache, reply, prompt_len=4))
    assert cache.cached_prefix_len([*reply, 0]) == 8
    cache.check_integrity()


def test_discard_leaves_nothing_that_only_it_held() -> None:
    cache = KVCacheManager(8, SIZE)
    shared = list(range(4))
    cache.release(computed(cache, shared))
    cache.release(computed(cache, [*shared, 4, 5, 6, 7]))
    bad = computed(cache, [*shared, 50, 51, 52, 53])
    cache.discard(bad)
    assert cache.cached_prefix_len([*shared, 50, 51, 52, 53, 0]) == 4
    assert cache.cached_prefix_len([*shared, 4, 5, 6, 7, 0]) == 8
    cache.check_integrity()


def test_a_lease_ends_once() -> None:
    cache = KVCacheManager(2, SIZE)
    lease = cache.open([1])
    cache.release(lease)
    with pytest.raises(AssertionError, match="ended already"):
        cache.release(lease)


def test_clear_forgets_what_nobody_holds() -> None:
    cache = KVCacheManager(8, SIZE)
    tokens = list(range(9))
    cache.release(computed(cache, tokens))
    held = cache.open(tokens[:5])
    cache.clear()
    assert cache.cached_prefix_len(tokens) == 4
    assert held.num_cached == 4
    cache.check_integrity()


@pytest.mark.parametrize(
    ("prompt_len", "num_tokens", "limit", "run"),
    [
        (6, 12, None, range(6, 12)),
        (6, 12, 4, range(8, 12)),
        (6, 12, 0, range(12, 12)),
        (12, 12, None, range(0)),
        (0, 12, None, range(12)),
        (5, 15, 2, range(10, 12)),
    ],
)
def test_last_generated_run(
    prompt_len: int, num_tokens: int, limit: int | None, run: range
) -> None:
    cache = KVCacheManager(8, SIZE)
    tokens = list(range(num_tokens))
    cache.release(computed(cache, tokens, prompt_len=prompt_len))
    found = cache.last_generated_run(cache.open([*tokens[:12], 99]), limit)
    assert list(found) == list(run)


def test_the_last_run_ends_where_a_prompt_goes_on() -> None:
    cache = KVCacheManager(8, SIZE)
    first = list(range(8))
    cache.release(computed(cache, first, prompt_len=3))
    longer = [*first, *range(20, 28)]
    cache.release(computed(cache, longer))
    lease = cache.open([*longer, 0])
    assert lease.num_cached == 16
    assert cache.last_generated_run(lease, None) == range(3, 8)
    assert cache.last_generated_run(lease, 2) == range(6, 8)


def test_the_first_writers_bit_stays() -> None:
    cache = KVCacheManager(8, SIZE)
    tokens = list(range(8))
    cache.release(computed(cache, tokens))
    cache.release(computed(cache, tokens, prompt_len=0))
    assert len(cache.last_generated_run(cache.open([*tokens, 0]), None)) == 0


@pytest.mark.parametrize("num_tokens", [9, 11, 12])
def test_the_run_goes_on_in_the_ending(num_tokens: int) -> None:
    cache = KVCacheManager(8, SIZE)
    tokens = list(range(num_tokens))
    lease = cache.open(tokens)
    assert cache.reserve(lease, num_tokens - 1)
    # The last token was sampled, and never computed.
    cache.commit(lease, tokens, num_tokens - 1, prompt_len=6)
    cache.note_ending(lease, tokens, prompt_len=6)
    cache.release(lease)
    follow_up = cache.open([*tokens, 50, 51])
    assert follow_up.num_cached == 8
    assert cache.last_generated_run(follow_up, None) == range(6, num_tokens)
    assert cache.last_generated_run(follow_up, 2) == range(num_tokens - 2, num_tokens)
    # Computed again as a prompt, they stay what they were.
    assert cache.reserve(follow_up, num_tokens + 2)
    cache.commit(follow_up, [*tokens, 50, 51], num_tokens + 2, prompt_len=num_tokens + 2)
    cache.note_ending(follow_up, [*tokens, 50, 51], prompt_len=num_tokens + 2)
    cache.release(follow_up)
    again = cache.open([*tokens, 50, 51, 52, 53])
    assert cache.last_generated_run(again, None) == range(6, num_tokens)
    cache.check_integrity()


def test_who_shares_nothing_leaves_no_ending() -> None:
    cache = KVCacheManager(8, SIZE)
    tokens = list(range(6))
    cache.release(computed(cache, tokens[:4]))
    lease = cache.open(tokens, shares=False)
    assert cache.reserve(lease, 6)
    cache.note_ending(lease, tokens, prompt_len=4)
    cache.release(lease)
    assert cache.open([*tokens, 9]).ending.length == 0


def test_integrity_sees_a_stolen_block() -> None:
    cache = KVCacheManager(4, SIZE)
    lease = computed(cache, list(range(9)))
    stolen = lease.block_ids.pop()
    with pytest.raises(AssertionError):
        cache.check_integrity()
    lease.block_ids.append(stolen)
    cache.check_integrity()
    lease.block_ids.reverse()
    with pytest.raises(AssertionError):
        cache.check_integrity()


class CacheMachine(RuleBasedStateMachine):
    """Random lives of leases in a small pool; the content of every indexed block is tracked."""

    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.cache = KVCacheManager(10, 2)
        self.tokens: dict[Lease, list[int]] = {}
        self.written: dict[int, tuple[int, ...]] = {}

    @rule(
        target=leases,
        tokens=st.lists(st.integers(0, 1), min_size=1, max_size=9),
        reads=st.booleans(),
        shares=st.booleans(),
    )
    def open(self, tokens: list[int], reads: bool, shares: bool) -> object:
        expected = self.cache.cached_prefix_len(tokens) if reads else 0
        lease = self.cache.open(tokens, reads=reads, shares=shares)
        assert lease.num_cached == expected < len(tokens)
        for place, block_id in enumerate(lease.block_ids):
            assert self.written[block_id] == tuple(tokens[: place * 2 + 2])
        if not self.cache.reserve(lease, len(tokens)):
            self.cache.release(lease)
            return multiple()
        self._write(lease, tokens)
        return lease

    def _write(self, lease: Lease, tokens: list[int]) -> None:
        """Remember what a model would have put into each block: its tokens and all before."""
        self.tokens[lease] = tokens
        for place in range(lease.num_indexed, len(lease.block_ids)):
            self.written[lease.block_ids[place]] = tuple(tokens[: place * 2 + 2])

    @rule(lease=leases, token_id=st.integers(0, 1))
    def grow(self, lease: Lease, token_id: int) -> None:
        tokens = self.tokens[lease]
        if self.cache.reserve(lease, len(tokens) + 1):
            self._write(lease, [*tokens, token_id])

    @rule(lease=leases, share=st.floats(0, 1), prompt_len=st.integers(0, 12))
    def commit(self, lease: Lease, share: float, prompt_len: int) -> None:
        tokens = self.tokens[lease]
        self.cache.commit(lease, tokens, int(share * len(tokens)), prompt_len=prompt_len)

    @rule(lease=leases, prompt_len=st.integers(0, 12))
    def note_ending(self, lease: Lease, prompt_len: int) -> None:
        self.cache.note_ending(lease, self.tokens[lease], prompt_len=prompt_len)

    @rule(lease=consumes(leases))
    def release(self, lease: Lease) -> None:
        self.cache.release(lease)
        del self.tokens[lease]

    @rule(lease=consumes(leases))
    def discard(self, lease: Lease) -> None:
        self.cache.discard(lease)
        del self.tokens[lease]

    @rule()
    def clear(self) -> None:
        self.cache.clear()

    @invariant()
    def books_are_right(self) -> None:
        self.cache.check_integrity()
        assert self.cache.num_leases == len(self.tokens)
        for lease, tokens in self.tokens.items():
            for place, block_id in enumerate(lease.block_ids):
                assert self.written[block_id] == tuple(tokens[: place * 2 + 2])

    def teardown(self) -> None:
        for lease in tuple(self.tokens):
            self.cache.release(lease)
        self.cache.check_integrity()
        assert self.cache.num_available == self.cache.num_blocks


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=80, stateful_step_count=40)
