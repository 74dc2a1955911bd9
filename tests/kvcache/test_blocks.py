import pytest

from flm.kvcache.blocks import BlockAllocator


def test_fresh_blocks_are_neighbours_in_order() -> None:
    blocks = BlockAllocator(4)
    assert [blocks.reserve() for _ in range(4)] == [0, 1, 2, 3]
    assert (blocks.num_free, blocks.num_idle, blocks.num_held) == (0, 0, 4)


def test_released_blocks_come_back_in_order() -> None:
    blocks = BlockAllocator(4)
    held = [blocks.reserve() for _ in range(3)]
    for block_id in reversed(held):
        blocks.release(block_id, keep=False)
    assert [blocks.reserve() for _ in range(4)] == [0, 1, 2, 3]


def test_a_block_is_held_until_the_last_holder_lets_go() -> None:
    blocks = BlockAllocator(2)
    block_id = blocks.reserve()
    blocks.acquire(block_id)
    blocks.release(block_id, keep=True)
    assert blocks.ref_count(block_id) == 1
    assert blocks.num_idle == 0
    blocks.release(block_id, keep=True)
    assert blocks.idle_blocks() == (block_id,)


def test_idle_blocks_stand_oldest_first_and_acquiring_takes_them_out() -> None:
    blocks = BlockAllocator(3)
    a, b, c = (blocks.reserve() for _ in range(3))
    for block_id in (b, a, c):
        blocks.release(block_id, keep=True)
    assert blocks.idle_blocks() == (b, a, c)
    blocks.acquire(b)
    assert blocks.oldest_idle == a
    blocks.release(b, keep=True)
    assert blocks.idle_blocks() == (a, c, b)
    blocks.drop(a)
    assert blocks.num_free == 1


def test_releasing_too_often_is_noticed() -> None:
    blocks = BlockAllocator(1)
    block_id = blocks.reserve()
    blocks.release(block_id, keep=False)
    with pytest.raises(AssertionError, match="more often"):
        blocks.release(block_id, keep=False)


def test_an_empty_pool_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one block"):
        BlockAllocator(0)


def test_integrity_sees_a_leak_and_a_wrong_count() -> None:
    blocks = BlockAllocator(2)
    block_id = blocks.reserve()
    blocks.check_integrity([block_id])
    with pytest.raises(AssertionError, match="holders"):
        blocks.check_integrity([])
    with pytest.raises(AssertionError, match="holders"):
        blocks.check_integrity([block_id, block_id])
