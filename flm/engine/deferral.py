"""When to wait for a sequence that is reading the same prefix."""

from collections.abc import Iterable

from flm.engine.sequence import Deferral, Sequence
from flm.kvcache.manager import KVCacheManager


def find_deferral(
    sequence: Sequence, running: Iterable[Sequence], cache: KVCacheManager
) -> Deferral | None:
    """The running sequence that is about to bring most of this one's prefix into the cache, if
    any brings more than the cache holds now."""
    leaders = [other for other in running if other.is_prefilling and other.request.cache_prompt]
    if not leaders or not sequence.reads_cache:
        return None
    longest = cache.cached_prefix_len(sequence.token_ids)
    found: Deferral | None = None
    for leader in leaders:
        # Generated tokens are indexed only when a sequence ends, so they do not count.
        limit = min(len(sequence.token_ids) - 1, leader.prompt_len)
        shared = shared_prefix_len(sequence.token_ids, leader.token_ids, limit, cache.block_size)
        if shared > max(longest, leader.num_computed):
            longest = shared
            found = Deferral(leader, shared)
    return found


def shared_prefix_len(left: list[int], right: list[int], limit: int, block_size: int) -> int:
    """Tokens in the full blocks with which both lists begin, at most ``limit``."""
    shared = 0
    while shared + block_size <= limit:
        end = shared + block_size
        if left[shared:end] != right[shared:end]:
            break
        shared = end
    return shared
