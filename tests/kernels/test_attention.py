import pytest
import torch
from torch import Tensor

from flm.kernels.attention import (
    batch_attention,
    batch_mask,
    causal_mask,
    chunk_attention,
    steady_chunk_attention,
    steady_mask,
)

CPU = torch.device("cpu")

HEADS = [(9, 3, 64), (4, 2, 16), (4, 4, 8), (6, 1, 32)]


def tensors(num_rows: int, num_keys: int, heads: tuple[int, int, int]) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    num_heads, num_kv_heads, dim = heads
    q = torch.randn(num_rows, num_heads, dim, generator=generator)
    k, v = torch.randn(2, num_keys, num_kv_heads, dim, generator=generator)
    return q, k, v


def steady(q: Tensor, k: Tensor, v: Tensor, start: int) -> Tensor:
    return steady_chunk_attention(q, k, v, steady_mask(q.shape[0], start, CPU))


def plain(q: Tensor, k: Tensor, v: Tensor, start: int) -> Tensor:
    """The definition, in float64, a row and a head at a time."""
    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[1] // k.shape[1]
    out = torch.empty_like(q)
    for row in range(q.shape[0]):
        for head in range(q.shape[1]):
            keys, values = k[: start + row + 1, head // group], v[: start + row + 1, head // group]
            weights = torch.softmax(keys @ q[row, head] / q.shape[2] ** 0.5, dim=0)
            out[row, head] = weights @ values
    return out


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize(("start", "num_rows"), [(0, 1), (0, 20), (5, 1), (40, 17), (600, 3)])
def test_a_chunk(heads: tuple[int, int, int], start: int, num_rows: int) -> None:
    q, k, v = tensors(num_rows, start + num_rows, heads)
    wanted = plain(q, k, v, start)
    fast = chunk_attention(q, k, v, causal_mask(num_rows, start, CPU))
    assert torch.allclose(fast.double(), wanted, atol=1e-5)
    assert torch.allclose(steady(q, k, v, start).double(), wanted, atol=1e-5)


@pytest.mark.parametrize("heads", HEADS)
def test_a_padded_batch(heads: tuple[int, int, int]) -> None:
    lengths = [1, 30, 7]
    q, _, _ = tensors(3, 1, heads)
    streams = [tensors(1, length, heads)[1:] for length in lengths]
    keys, values = torch.zeros(2, 3, 30, heads[1], heads[2])
    for row, (k, v) in enumerate(streams):
        keys[row, : lengths[row]], values[row, : lengths[row]] = k, v
    mask = torch.arange(30) < torch.tensor(lengths)[:, None]
    found = batch_attention(q, keys, values, batch_mask(mask, q.dtype))
    for row, (k, v) in enumerate(streams):
        wanted = plain(q[row : row + 1], k, v, lengths[row] - 1)[0]
        assert torch.allclose(found[row].double(), wanted, atol=1e-5)


@pytest.mark.parametrize("heads", HEADS[:2])
def test_steady_rows_do_not_depend_on_the_cut(heads: tuple[int, int, int]) -> None:
    total = 1100
    q, k, v = tensors(total, total, heads)
    whole = steady(q, k, v, 0)
    for size in (1, 2, 3, 7, 16, 33, 200, 257, 512, 800):
        for start in {0, 1, 13, 500, 511, 512, 513, total - size}:
            end = start + size
            if end <= total:
                piece = steady(q[start:end], k[:end], v[:end], start)
                assert torch.equal(piece, whole[start:end])
