"""Products with weight matrices."""

from typing import Final

from torch import Tensor
from torch.nn import functional

_ROW_MULTIPLE: Final = 16


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x @ weight.T + bias``: [T, in] and [out, in] to [T, out]."""
    return functional.linear(x, weight, bias)


def steady_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``linear``, each row's result the same bits whatever number of rows stand beside it."""
    # BLAS libraries share the rows out among threads and tiles, and take another kernel, which
    # adds in another order, for the one to three rows left over. With a whole number of tiles
    # nothing is left over (measured with MKL, float32, 1 to 16 threads: multiples of 4 agree).
    num_rows = x.shape[0]
    return functional.linear(padded_rows(x, _ROW_MULTIPLE), weight, bias)[:num_rows]


def padded_rows(x: Tensor, multiple: int) -> Tensor:
    """``x`` with rows of zeros added up to a multiple: [T, ...] to [ceil(T / multiple), ...]."""
    missing = -x.shape[0] % multiple
    if missing == 0:
        return x
    return functional.pad(x, (0, 0) * (x.dim() - 1) + (0, missing))
