"""Products with weight matrices."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from flm.kernels.library import Kernels

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""``x @ weight.T + bias``: [T, in], [out, in] and [out] to [T, out]."""
_ROW_MULTIPLE: Final = 16


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The product as the machine does it fastest."""
    return functional.linear(x, weight, bias)


def steady_product(kernels: Kernels | None) -> Product:
    """``linear`` in float32 on the CPU, each row's result the same bits whatever number of rows
    stand beside it. Without the native kernels it is computed on one thread."""
    return _serial if kernels is None else partial(_native, kernels)


def _native(kernels: Kernels, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if weight.dtype != torch.float32:
        return _serial(x, weight, bias)
    own_bias = None if bias is None else bias.contiguous().numpy()
    own_weight, own_x = weight.contiguous().numpy(), x.contiguous().numpy()
    return torch.from_numpy(kernels.product(own_weight, own_bias, own_x, torch.get_num_threads()))


def _serial(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # BLAS libraries share the terms of a sum out among threads where that pays for the number of
    # rows (measured with MKL on Intel), and take another kernel, which adds in another order, for
    # the one to three rows left over. On one thread and with whole tiles neither happens.
    num_rows = x.shape[0]
    with _one_thread():
        return functional.linear(padded_rows(x, _ROW_MULTIPLE), weight, bias)[:num_rows]


@contextmanager
def _one_thread() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def padded_rows(x: Tensor, multiple: int) -> Tensor:
    """``x`` with rows of zeros added up to a multiple: [T, ...] to [ceil(T / multiple), ...]."""
    missing = -x.shape[0] % multiple
    if missing == 0:
        return x
    return functional.pad(x, (0, 0) * (x.dim() - 1) + (0, missing))
