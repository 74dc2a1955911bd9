import pytest
import torch

from flm.kvcache.pool import KVPool
from flm.prefill.chunk import Chunk
from flm.prefill.runner import run_chunk
from tests.support.engines import prompt
from tests.support.fake_model import VOCAB_SIZE, FakeModel

TABLE = (5, 2, 9, 1, 7, 0)


def read(model: FakeModel, token_ids: tuple[int, ...], cuts: list[int], num_logits: int):
    """The prompt in pieces that end at ``cuts``; logits of the last piece."""
    pool = KVPool(model.layout, 10, 4, torch.float32, "cpu")
    logits, start = None, 0
    for end in [*cuts, len(token_ids)]:
        is_last = end == len(token_ids)
        chunk = Chunk("r", token_ids[start:end], start, TABLE, num_logits if is_last else 0)
        logits = run_chunk(model, pool, chunk)
        assert is_last or logits.numel() == 0
        start = end
    return logits


@pytest.mark.parametrize("cuts", [[1], [4], [7, 8], [1, 2, 3, 11], list(range(1, 22))])
def test_in_pieces_is_as_at_once(cuts: list[int]) -> None:
    model, token_ids = FakeModel(), prompt(22)
    whole = read(model, token_ids, [], 1)
    assert whole.shape == (1, VOCAB_SIZE)
    torch.testing.assert_close(read(model, token_ids, cuts, 1), whole, atol=1e-5, rtol=1e-5)


def test_logits_of_the_last_rows() -> None:
    model, token_ids = FakeModel(), prompt(22)
    every = read(model, token_ids, [], 22)
    torch.testing.assert_close(read(model, token_ids, [], 3), every[-3:])
    torch.testing.assert_close(read(model, token_ids[:9], [], 9), every[:9], atol=1e-5, rtol=1e-5)
