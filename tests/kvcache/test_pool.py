import torch

from flm.kvcache.layout import CacheLayout, LayerState
from flm.kvcache.pool import KVPool

LAYOUT = CacheLayout((LayerState(2, 8), LayerState(1, 16)))


def test_each_layer_has_pages_of_its_own_shape_and_two_for_nobody() -> None:
    pool = KVPool(LAYOUT, 5, 4, torch.float32, "cpu")
    assert [tuple(pages.shape) for pages in pool.keys] == [(7, 4, 2, 8), (7, 4, 1, 16)]
    assert [tuple(pages.shape) for pages in pool.flat_values] == [(28, 2, 8), (28, 1, 16)]
    assert (pool.null_block, pool.scratch_block) == (5, 6)
    assert all(not pages.any() for pages in (*pool.keys, *pool.values))


def test_flat_rows_are_the_same_memory() -> None:
    pool = KVPool(LAYOUT, 5, 4, torch.bfloat16, "cpu")
    pool.flat_keys[0][9] = 1
    assert pool.keys[0][2, 1].eq(1).all()


def test_numbers_of_one_byte_have_room_for_a_scale() -> None:
    pool = KVPool(LAYOUT, 5, 4, torch.int8, "cpu")
    assert [tuple(pages.shape) for pages in pool.keys] == [(7, 4, 2, 10), (7, 4, 1, 18)]
    assert pool.num_bytes == sum(t.numel() for t in (*pool.keys, *pool.values))


def test_pages_begin_at_cache_lines() -> None:
    pool = KVPool(LAYOUT, 5, 4, torch.bfloat16, "cpu")
    assert all(pages.data_ptr() % 64 == 0 for pages in (*pool.keys, *pool.values))


def test_num_bytes_counts_keys_and_values_of_all_pages() -> None:
    pool = KVPool(LAYOUT, 5, 4, torch.bfloat16, "cpu")
    assert pool.num_bytes == sum(2 * t.numel() for t in (*pool.keys, *pool.values))


def test_cleared_blocks_are_zero_in_every_layer_and_the_others_stay() -> None:
    pool = KVPool(LAYOUT, 5, 4, torch.float32, "cpu")
    for pages in (*pool.keys, *pool.values):
        pages.fill_(torch.nan)
    pool.clear(torch.tensor([3, 0]))
    for pages in (*pool.keys, *pool.values):
        assert not pages[[0, 3]].any()
        assert pages[[1, 2, 4, 5, 6]].isnan().all()


def test_off_the_cpu_layers_of_one_shape_are_one_tensor() -> None:
    layout = CacheLayout((LayerState(2, 8), LayerState(2, 8), LayerState(1, 16), LayerState(2, 8)))
    pool = KVPool(layout, 5, 4, torch.bfloat16, "meta")
    shapes = [tuple(pages.shape) for pages in pool.keys]
    assert shapes == [(7, 4, 2, 8), (7, 4, 2, 8), (7, 4, 1, 16), (7, 4, 2, 8)]
    assert [tuple(rows.shape) for rows in pool.flat_values][2] == (28, 1, 16)
    bases = [id(pages._base) for pages in pool.keys]
    assert bases[0] == bases[1]
    assert len(set(bases)) == 3
    assert not set(bases) & {id(pages._base) for pages in pool.values}
