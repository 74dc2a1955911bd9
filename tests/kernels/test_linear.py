import pytest
import torch

from flm.kernels.build import load_kernels
from flm.kernels.linear import Product, linear, padded_rows, steady_product

STEADY = {"native": steady_product(load_kernels().kernels), "serial": steady_product(None)}
SHAPES = [(64, 64), (192, 576), (576, 1536), (100, 300), (16, 48), (8, 8)]


@pytest.mark.parametrize(("num_out", "num_in"), SHAPES)
@pytest.mark.parametrize("with_bias", [True, False])
def test_it_is_the_product(num_out: int, num_in: int, with_bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, num_in, generator=generator)
    weight = torch.randn(num_out, num_in, generator=generator)
    bias = torch.randn(num_out, generator=generator) if with_bias else None
    wanted = x.double() @ weight.double().T + (bias.double() if bias is not None else 0.0)
    for product in (linear, *STEADY.values()):
        assert torch.allclose(product(x, weight, bias).double(), wanted, atol=1e-3)


@pytest.mark.parametrize("product", STEADY.values(), ids=STEADY)
@pytest.mark.parametrize(("num_out", "num_in"), SHAPES)
def test_steady_rows_do_not_depend_on_their_number(
    num_out: int, num_in: int, product: Product
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(530, num_in, generator=generator)
    weight = torch.randn(num_out, num_in, generator=generator)
    whole = product(x, weight, None)
    for num_rows in (*range(1, 21), 31, 100, 257, 511, 512, 513):
        assert torch.equal(product(x[:num_rows], weight, None), whole[:num_rows])
        last = product(x[-num_rows:], weight, None)
        assert torch.equal(last, whole[-num_rows:])


def test_padded_rows() -> None:
    x = torch.ones(3, 2, 4)
    padded = padded_rows(x, 8)
    assert padded.shape == (8, 2, 4)
    assert torch.equal(padded[:3], x)
    assert not padded[3:].any()
    assert padded_rows(x, 3) is x
    assert padded_rows(x[:0], 16).shape == (0, 2, 4)
    for product in STEADY.values():
        assert product(torch.ones(0, 4), torch.ones(7, 4), None).shape == (0, 7)


def test_the_number_of_threads_changes_no_bit() -> None:
    x, weight, bias = torch.randn(70, 1536), torch.randn(575, 1536), torch.randn(575)
    num_threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = [product(x, weight, bias) for product in STEADY.values()]
        torch.set_num_threads(3)
        for product, wanted in zip(STEADY.values(), alone, strict=True):
            assert torch.equal(product(x, weight, bias), wanted)
            assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(num_threads)


def test_it_takes_rows_that_are_not_contiguous() -> None:
    x, weight = torch.randn(30, 5).T, torch.randn(30, 7).T
    for product in STEADY.values():
        assert torch.allclose(product(x, weight, None), x @ weight.T, atol=1e-4)
