import pytest

from flm.kvcache.prefix import MAX_ENDINGS, NO_PARENT, PrefixIndex


def chain() -> PrefixIndex:
    """Blocks 5 -> 6, and 7 beside 6."""
    index = PrefixIndex(2)
    index.insert(5, parent=NO_PARENT, token_ids=(1, 2), generated=0)
    index.insert(6, parent=5, token_ids=(3, 4), generated=0b10)
    index.insert(7, parent=5, token_ids=(3, 5), generated=0)
    return index


@pytest.mark.parametrize(
    ("token_ids", "max_tokens", "blocks"),
    [
        ([1, 2, 3, 4], 4, [5, 6]),
        ([1, 2, 3, 4], 3, [5]),
        ([1, 2, 3, 5, 9], 9, [5, 7]),
        ([1, 2, 3], 3, [5]),
        ([1, 2], 1, []),
        ([3, 4], 2, []),
        ([], 0, []),
        ([], -1, []),
    ],
)
def test_match_is_the_longest_chain_of_full_blocks(
    token_ids: list[int], max_tokens: int, blocks: list[int]
) -> None:
    assert chain().match(token_ids, max_tokens) == blocks


def test_the_same_tokens_elsewhere_are_another_block() -> None:
    index = chain()
    assert index.find(6, (3, 4)) is None
    assert index.find(5, (3, 4)) == 6


def test_tokens_with_equal_hashes_are_told_apart() -> None:
    # Python hashes -1 and -2 alike, so these two tuples share a slot.
    assert hash((-1, 0)) == hash((-2, 0))
    index = PrefixIndex(2)
    index.insert(0, parent=NO_PARENT, token_ids=(-1, 0), generated=0)
    assert index.match([-2, 0], 2) == []
    index.insert(1, parent=NO_PARENT, token_ids=(-2, 0), generated=0)
    assert index.match([-2, 0], 2) == [1]


def test_a_parent_cannot_leave_before_its_children() -> None:
    index = chain()
    with pytest.raises(AssertionError, match="children"):
        index.remove(5)
    index.remove(6)
    index.remove(7)
    index.remove(5)
    assert len(index) == 0
    index.check_integrity()


def test_a_place_is_taken_once() -> None:
    index = chain()
    with pytest.raises(AssertionError, match="tokens are indexed"):
        index.insert(8, parent=5, token_ids=(3, 4), generated=0)
    with pytest.raises(AssertionError, match="block 6 is indexed"):
        index.insert(6, parent=5, token_ids=(9, 9), generated=0)


def test_integrity_sees_a_lost_parent_and_a_wrong_count() -> None:
    index = chain()
    index.check_integrity()
    del index[5].children[0]
    with pytest.raises(AssertionError, match="children"):
        index.check_integrity()
    index[5].children.insert(0, (3, 4))
    index[6].parent = 9
    with pytest.raises(AssertionError, match="lost its parent"):
        index.check_integrity()


def test_the_nearest_child_says_where_tokens_leave_it() -> None:
    index = PrefixIndex(4)
    index.insert(0, parent=NO_PARENT, token_ids=(1, 2, 3, 4), generated=0)
    assert index.find_divergence(0, [5, 6]) is None
    for block_id, tokens in enumerate([(5, 6, 1, 1), (5, 6, 7, 8), (5, 9, 9, 9), (9, 9, 9, 9)], 1):
        index.insert(block_id, parent=0, token_ids=tokens, generated=0)
    index.insert(5, parent=2, token_ids=(2, 2, 2, 2), generated=0)
    assert index.find_divergence(0, [5, 6, 7, 0]) == (3, (8,))
    assert index.find_divergence(0, (5, 6, 7, 9), 4) == (3, (8, 2, 2, 2))
    assert index.find_divergence(0, (5, 6, 7, 9), 9) == (3, (8, 2, 2, 2, 2))
    assert index.find_divergence(0, (5, 6, 0, 9), 9) == (2, (1, 1))
    assert index.find_divergence(0, (5, 9, 9, 8, 7)) == (3, (9,))
    assert index.find_divergence(0, (7, 7, 7, 7)) in {(0, (5,)), (0, (9,))}
    # All that is asked for is there, or the tokens end first.
    assert index.find_divergence(0, (5, 6, 7, 8)) is None
    assert index.find_divergence(0, (5, 6)) is None
    assert index.find_divergence(0, ()) is None
    index.remove(5)
    index.remove(2)
    assert index.find_divergence(0, (5, 6, 7, 0)) == (2, (1,))
    index.check_integrity()


def test_an_ending_is_found_by_the_tokens_it_shares() -> None:
    index = PrefixIndex(4)
    index.insert(0, parent=NO_PARENT, token_ids=(1, 2, 3, 4), generated=0)
    index.note_ending(0, (5, 6, 7), 0b110)
    index.note_ending(0, (5, 9), 0b10)
    assert index.find_ending(0, (5, 6, 7, 8)) == (3, 0b110)
    assert index.find_ending(0, [5, 6, 1]) == (2, 0b10)
    assert index.find_ending(0, (5, 9, 9)) == (2, 0b10)
    assert index.find_ending(0, (9,)) == index.find_ending(0, ()) == (0, 0)
    # Who wrote it first decides.
    index.note_ending(0, (5, 6, 7), 0b001)
    assert index.find_ending(0, (5, 6, 7)) == (3, 0b110)
    index.check_integrity()


def test_the_oldest_endings_are_forgotten() -> None:
    index = PrefixIndex(4)
    index.insert(0, parent=NO_PARENT, token_ids=(1, 2, 3, 4), generated=0)
    for token_id in range(MAX_ENDINGS + 1):
        index.note_ending(0, (token_id,), 1)
    assert index.find_ending(0, (0,)).length == 0
    assert index.find_ending(0, (1,)).length == 1
    index.check_integrity()


@pytest.mark.parametrize("wrong", [{(): 0}, {(1, 2, 3, 4, 5): 0}, {(1,): 2}])
def test_integrity_sees_a_wrong_ending(wrong: dict[tuple[int, ...], int]) -> None:
    index = PrefixIndex(4)
    index.insert(0, parent=NO_PARENT, token_ids=(1, 2, 3, 4), generated=0)
    index[0].endings.update(wrong)
    with pytest.raises(AssertionError, match="wrong length"):
        index.check_integrity()
