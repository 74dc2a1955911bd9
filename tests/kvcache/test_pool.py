import torch

from flm.kvcache.layout import CacheLayout, LayerState
from flm.kvcache.pool import KVPool

LAYOUT = CacheLayout((LayerState(2, 8), LayerState(1, 16)))


def test_each_layer_has_pages_of_its_own_shape_and_a_null_page() -> None:
    pool = KVPool(LAYOUT, 5, 4, torch.float32, "cpu")
    assert [tuple(pages.shape) for pages in pool.keys] == [(6, 4, 2, 8), (6, 4, 1, 16)]
    assert [tuple(pages.shape) for pages in pool.flat_values] == [(24, 2, 8), (24, 1, 16)]
    assert pool.null_block == 5
    assert all(not pages.any() for pages in (*pool.keys, *pool.values))


def test_flat_rows_are_the_same_memory() -> None:
    pool = KVPool(LAYOUT, 5, 4, torch.bfloat16, "cpu")
    pool.flat_keys[0][9] = 1
    assert pool.keys[0][2, 1].eq(1).all()


def test_numbers_of_one_byte_have_room_for_a_scale() -> None:
    pool = KVPool(LAYOUT, 5, 4, torch.int8, "cpu")
    assert [tuple(pages.shape) for pages in pool.keys] == [(6, 4, 2, 10), (6, 4, 1, 18)]
    assert pool.num_bytes == sum(t.numel() for t in (*pool.keys, *pool.values))


def test_pages_begin_at_cache_lines() -> None:
    pool = KVPool(LAYOUT, 5, 4, torch.bfloat16, "cpu")
    assert all(pages.data_ptr() % 64 == 0 for pages in (*pool.keys, *pool.values))


def test_num_bytes_counts_keys_and_values_of_all_pages() -> None:
    pool = KVPool(LAYOUT, 5, 4, torch.bfloat16, "cpu")
    assert pool.num_bytes == sum(2 * t.numel() for t in (*pool.keys, *pool.values))
