"""Element-wise functions."""

import torch
from torch import Tensor
from torch.nn import functional


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return functional.silu(x)


def steady_silu(x: Tensor) -> Tensor:
    """``silu``, an element's result the same bits wherever in the tensor it stands."""
    # torch's own uses one exponential in the body of a tensor and another in what is left over
    # at its end and at the ends of the threads' shares; torch.exp uses one throughout.
    return x / (1.0 + torch.exp(-x))
