import pytest
import torch
from torch import Tensor

from flm.kvcache.layout import CacheLayout, LayerState
from flm.kvcache.pool import KVPool
from flm.kvcache.view import ChunkView, DecodeView, StaticDecodeView, TablePacker

SIZE = 4
RUN, SCATTERED = (2, 3, 4), (4, 0, 3)


@pytest.fixture
def pool() -> KVPool:
    return KVPool(CacheLayout((LayerState(2, 3),) * 2), 6, SIZE, torch.float32, "cpu")


def rows(num_rows: int, seed: int = 0) -> Tensor:
    return torch.randn(num_rows, 2, 3, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("table", [RUN, SCATTERED])
@pytest.mark.parametrize("cuts", [(9,), (4, 5), (1, 2, 3, 3), (8, 1), (1,) * 9])
def test_a_sequence_is_read_as_it_was_written(
    pool: KVPool, table: tuple[int, ...], cuts: tuple[int, ...]
) -> None:
    keys, values = rows(9, 1), rows(9, 2)
    start = 0
    for length in cuts:
        view = ChunkView(pool, table, start, length)
        span = slice(start, start + length)
        view.write(1, keys[span], values[span])
        start += length
        assert view.length == start
        found_keys, found_values = view.gather(1)
        assert found_keys.equal(keys[:start])
        assert found_values.equal(values[:start])
    assert not pool.keys[0].any()


def test_neighbouring_pages_are_read_without_a_copy(pool: KVPool) -> None:
    keys, _ = ChunkView(pool, RUN, 0, 9).gather(0)
    assert keys.untyped_storage().data_ptr() == pool.keys[0].untyped_storage().data_ptr()
    view = DecodeView(pool, torch.tensor([RUN, SCATTERED]), [9, 9])
    assert view.gather(0, 0)[0].untyped_storage().data_ptr() == pool.keys[0].data_ptr()
    assert view.gather(0, 1)[0].untyped_storage().data_ptr() != pool.keys[0].data_ptr()


def test_only_the_written_rows_change(pool: KVPool) -> None:
    for pages in pool.flat_keys:
        pages.fill_(7)
    ChunkView(pool, SCATTERED, 4, 4).write(0, rows(4), rows(4))
    untouched = [block_id for block_id in range(6) if block_id != SCATTERED[1]]
    assert pool.keys[0][untouched].eq(7).all()


def test_the_table_must_cover_the_rows(pool: KVPool) -> None:
    with pytest.raises(ValueError, match="do not cover"):
        ChunkView(pool, RUN, 0, 13)
    with pytest.raises(ValueError, match="do not cover"):
        ChunkView(pool, RUN, 0, 0)


def test_a_batch_sees_each_sequence_and_zeros(pool: KVPool) -> None:
    short, long = (5,), (4, 0, 3)
    keys = {short: rows(2, 1), long: rows(9, 2)}
    for table, own in keys.items():
        ChunkView(pool, table, 0, len(own)).write(0, own, -own)
    packed = TablePacker(pool).pack([short, long])
    view = DecodeView(pool, packed, [3, 10])
    new = rows(2, 3)
    view.write(0, new, -new)
    expected = [torch.cat([keys[short], new[:1]]), torch.cat([keys[long], new[1:]])]
    padded_keys, padded_values = view.gather_padded(0)
    assert padded_keys.shape == (2, 10, 2, 3)
    for row, own in enumerate(expected):
        found_keys, found_values = view.gather(0, row)
        assert found_keys.equal(own)
        assert found_values.equal(-own)
        assert padded_keys[row, : len(own)].equal(own)
        assert not padded_values[row, len(own) :].any()
    assert view.padding_mask().sum(dim=1).tolist() == [3, 10]
    assert view.padding_mask() is view.padding_mask()


@pytest.mark.parametrize("start", [0, 1, 3, 4, 6])
def test_what_a_former_holder_left_is_never_seen(pool: KVPool, start: int) -> None:
    for pages in (*pool.flat_keys, *pool.flat_values):
        pages[: pool.null_block * SIZE] = torch.nan
    for position in range(start):
        ChunkView(pool, (2, 1), position, 1).write(0, rows(1), rows(1))
    ChunkView(pool, (5, 3), 0, 7).write(0, rows(7), rows(7))
    view = DecodeView(pool, TablePacker(pool).pack([(2, 1), (5, 3)]), [start + 1, 8])
    view.write(0, rows(2), rows(2))
    for padded in view.gather_padded(0):
        assert padded.isfinite().all()


def test_a_pool_of_another_dtype_takes_rows(pool: KVPool) -> None:
    half = KVPool(pool.layout, 6, SIZE, torch.bfloat16, "cpu")
    for table in (RUN, SCATTERED):
        ChunkView(half, table, 0, 5).write(0, rows(5), rows(5))
        assert ChunkView(half, table, 0, 5).gather(0)[0].equal(rows(5).bfloat16())
    view = DecodeView(half, torch.tensor([RUN]), [6])
    view.write(0, rows(1), rows(1))
    assert view.gather(0, 0)[0][5].equal(rows(1)[0].bfloat16())


def test_packed_tables_follow_every_change(pool: KVPool) -> None:
    packer = TablePacker(pool)
    first = packer.pack([(0, 1), (2,)])
    assert first[:, :3].tolist() == [[0, 1, 6], [2, 6, 6]]
    grown, same = (0, 1, 3), (2,)
    assert packer.pack([grown, same])[:, :4].tolist() == [[0, 1, 3, 6], [2, 6, 6, 6]]
    assert packer.pack([same, grown])[:, :4].tolist() == [[2, 6, 6, 6], [0, 1, 3, 6]]
    assert packer.pack([same])[:, :2].tolist() == [[2, 6]]
    wide = tuple(range(6)) * 7
    assert packer.pack([wide])[0, :42].tolist() == list(wide)


def test_blocks_of_one_position() -> None:
    pool = KVPool(CacheLayout((LayerState(2, 3),)), 6, 1, torch.float32, "cpu")
    keys = rows(3)
    ChunkView(pool, (4, 1), 0, 2).write(0, keys[:2], keys[:2])
    view = DecodeView(pool, TablePacker(pool).pack([(4, 1, 0)]), [3])
    view.write(0, keys[2:], keys[2:])
    assert view.gather(0, 0)[0].equal(keys)


def test_a_static_view_sees_what_a_batch_sees(pool: KVPool) -> None:
    for pages in (*pool.flat_keys, *pool.flat_values):
        pages[: pool.null_block * SIZE] = torch.nan
    tables = [(5, 2), (4, 0, 3)]
    for table, length in zip(tables, (2, 9), strict=True):
        ChunkView(pool, table, 0, length).write(0, rows(length, length), rows(length, 7))
    packed = torch.tensor([[5, 2, 1, 1], [4, 0, 3, 1]])
    static = StaticDecodeView(pool, packed, torch.tensor([2, 9]))
    view = DecodeView(pool, packed, [3, 10])
    static.write(0, rows(2, 3), rows(2, 4))
    padded = [pages.clone() for pages in static.gather_padded(0)]
    assert padded[0].shape == (2, 4 * SIZE, 2, 3)
    for found, wanted in zip(padded, view.gather_padded(0), strict=True):
        assert found[:, :10].equal(wanted)
        assert not found[:, 12:].any()
    assert padded[0][1, 9].equal(rows(2, 3)[1])
    assert static.padding_mask()[:, :10].equal(view.padding_mask())
    assert static.padding_mask().sum(dim=1).tolist() == [3, 10]


def test_a_static_view_follows_its_tensors(pool: KVPool) -> None:
    packed, positions = torch.tensor([[5, 2]]), torch.tensor([0])
    for position, block_id in ((3, 5), (4, 2), (7, 2)):
        positions.fill_(position)
        new = rows(1, position)
        StaticDecodeView(pool, packed, positions).write(1, new, -new)
        assert pool.keys[1][block_id, position % SIZE].equal(new[0])
        assert pool.values[1][block_id, position % SIZE].equal(-new[0])
