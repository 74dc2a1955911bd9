"""Products with weights in 8 and 4 bits."""

from typing import Any

import pytest
import torch
from torch import Tensor

from flm.kernels import weight_only as module
from flm.kernels.weight_only import (
    GROUP,
    WeightFormat,
    problem_of,
    round_to_int4,
    round_to_int8,
    weight_only,
)

CPU = torch.device("cpu")
DTYPES = [torch.bfloat16, torch.float16]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_weight_is_off_by_more_than_half_a_step(dtype: torch.dtype) -> None:
    weight = numbers(48, 4 * GROUP).to(dtype)
    wide = weight.float()
    step = wide.abs().amax(dim=1, keepdim=True) / 127
    off = (round_to_int8(weight).widened().float() - wide).abs()
    # The scales themselves are rounded to the format.
    assert (off <= 0.5 * step + 0.01 * wide.abs()).all()
    groups = wide.unflatten(1, (-1, GROUP))
    steps = (groups.amax(dim=2) - groups.amin(dim=2)) / 15
    off4 = (round_to_int4(weight).widened().float() - wide).abs().unflatten(1, (-1, GROUP))
    assert (off4 <= 0.5 * steps[:, :, None] + 0.04 * wide.abs().max()).all()


def test_what_lies_on_a_grid_of_sixteen_steps_is_kept() -> None:
    """As the blocks of Q4_0 and Q4_1 do."""
    values = torch.randint(0, 16, (32, 3, GROUP), generator=torch.Generator().manual_seed(0))
    values[:, :, 0], values[:, :, 1] = 0, 15
    scales = 2.0 ** torch.randint(-6, -2, (32, 3, 1), generator=torch.Generator().manual_seed(1))
    weight = ((values - 8) * scales).flatten(1)
    assert torch.equal(round_to_int4(weight.to(torch.bfloat16)).widened().float(), weight)


@pytest.mark.parametrize("format_", ["int8", "int4"])
def test_extreme_rows(format_: WeightFormat) -> None:
    weight = torch.zeros(32, 2 * GROUP, dtype=torch.bfloat16)
    weight[1], weight[2], weight[3, 5] = 3.0, -2.0, 100.0
    x = numbers(4, 2 * GROUP).bfloat16()
    found = weight_only(weight, None, format_)(x).float()
    assert torch.isfinite(found).all()
    assert not found[:, 4:].any()
    assert torch.allclose(found, x.float() @ weight.float().T, rtol=0.02, atol=0.5)


@pytest.mark.parametrize("with_kernels", [True, False], ids=["kernels", "twins"])
@pytest.mark.parametrize("format_", ["int8", "int4"])
@pytest.mark.parametrize("shape", [(64, 96), (576, 1536), (40, 64), (100, 300)])
def test_the_product(
    monkeypatch: pytest.MonkeyPatch,
    format_: WeightFormat,
    shape: tuple[int, int],
    with_kernels: bool,
) -> None:
    if not with_kernels:
        monkeypatch.setattr(module, "_kernel", lambda *_: None)
    weight, bias = numbers(*shape).bfloat16(), numbers(shape[0], seed=1).bfloat16()
    product = weight_only(weight, bias, format_)
    for num_rows in (0, 1, 7, 130):
        x = numbers(num_rows, shape[1], seed=2).bfloat16()
        wanted = x.double() @ weight.double().T + bias.double()
        found = product(x)
        assert (found.dtype, found.shape) == (torch.bfloat16, (num_rows, shape[0]))
        if num_rows:
            limit = 0.02 if format_ == "int8" else 0.12
            assert (found.double() - wanted).norm() <= limit * wanted.norm()


@pytest.mark.parametrize("format_", ["int8", "int4"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_kernels_agree_with_their_twins(format_: WeightFormat, dtype: torch.dtype) -> None:
    assert problem_of(format_, CPU, dtype) is None


def test_a_kernel_that_is_wrong_or_missing_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_weight: Tensor) -> Any:
        raise NotImplementedError("no kernel for this device\nand more")

    monkeypatch.setitem(module._KERNELS, "int8", missing)
    assert problem_of("int8", CPU, torch.bfloat16) == "no kernel for this device"
    wrong = lambda weight: lambda x: 1.1 * x @ weight.T  # noqa: E731
    monkeypatch.setitem(module._KERNELS, "int8", wrong)
    assert problem_of("int8", CPU, torch.bfloat16) == "its products are wrong"
