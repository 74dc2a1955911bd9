import torch

from flm.kernels.activation import silu, steady_silu


def test_both_are_x_times_sigmoid() -> None:
    x = torch.linspace(-90.0, 90.0, 1001)
    wanted = x.double() * torch.sigmoid(x.double())
    for function in (silu, steady_silu):
        assert torch.allclose(function(x).double(), wanted, atol=1e-6)


def test_extremes_stay_finite() -> None:
    x = torch.tensor([-3e38, -1e4, -100.0, 0.0, 1e4, 3e38])
    assert torch.equal(steady_silu(x), torch.tensor([0.0, 0.0, 0.0, 0.0, 1e4, 3e38]).copysign(x))


def test_steady_elements_do_not_depend_on_their_place() -> None:
    x = torch.randn(40_000, generator=torch.Generator().manual_seed(0))
    whole = steady_silu(x)
    for start in range(0, 2000, 13):
        for size in (1, 3, 7, 15):
            piece = slice(start, start + size)
            assert torch.equal(steady_silu(x[piece].clone()), whole[piece])
