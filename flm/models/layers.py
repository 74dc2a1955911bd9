"""The parts that transformer layers are made of."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from flm.kernels.activation import silu, steady_silu
from flm.kernels.library import Kernels
from flm.kernels.linear import Product, linear, steady_product
from flm.kernels.weight_only import WeightFormat, weight_only
from flm.models.config import (
    FactorScaling,
    LinearScaling,
    Llama3Scaling,
    ModelConfig,
    RopeScaling,
    YarnScaling,
)


class Weights(Protocol):
    """A model's tensors by internal name (flm/models/weights/names.py)."""

    def tensor(self, name: str, *shape: int) -> Tensor:
        """The tensor, in the dtype and on the device of the model.

        Raises ModelFileError where it is missing, damaged or of another shape.
        """


@dataclass(frozen=True, slots=True)
class Parts:
    """Makes layers out of weights; ``exact`` picks the operations whose rows do not depend on
    what stands beside them, which the native ``kernels`` make fast. ``weight_format`` is how the
    layers keep their matrices; None: as the weights give them."""

    weights: Weights
    exact: bool
    kernels: Kernels | None = None
    weight_format: WeightFormat | None = None

    def linear(self, name: str, num_in: int, num_out: int, *, bias: bool = False) -> "Projection":
        """The product ``name``: [T, num_in] to [T, num_out]."""
        weight = self.weights.tensor(f"{name}.weight", num_out, num_in)
        own_bias = self.weights.tensor(f"{name}.bias", num_out) if bias else None
        if self.weight_format is not None:
            return weight_only(weight, own_bias, self.weight_format)
        return self.product(weight, own_bias)

    def product(self, weight: Tensor, bias: Tensor | None = None) -> "Linear":
        """The product with a tensor that is already there."""
        return Linear(weight, bias, steady_product(self.kernels) if self.exact else linear)

    def norm(self, name: str, size: int, eps: float) -> "RMSNorm":
        """The norm ``name`` over the last ``size`` numbers."""
        return RMSNorm(self.weights.tensor(f"{name}.weight", size), eps)

    def mlp(self, name: str, config: ModelConfig) -> "GatedMLP":
        """The feed-forward part of layer ``name``."""
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        return GatedMLP(
            gate=self.linear(f"{name}.gate", hidden, inner, bias=bias),
            up=self.linear(f"{name}.up", hidden, inner, bias=bias),
            down=self.linear(f"{name}.down", inner, hidden, bias=bias),
            activation=steady_silu if self.exact else silu,
        )


Projection = Callable[[Tensor], Tensor]
"""A product with a matrix that is known: [T, in] to [T, out]."""


@dataclass(frozen=True, slots=True)
class Linear:
    """``x @ weight.T + bias``; ``weight`` is [out, in]."""

    weight: Tensor
    bias: Tensor | None
    product: Product

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in] to [T, out]."""
        return self.product(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension, computed in float32."""

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """Norm over the last dimension; the shape stays."""
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


@dataclass(frozen=True, slots=True)
class GatedMLP:
    """``down(silu(gate(x)) * up(x))`` (SwiGLU, arXiv 2002.05202)."""

    gate: Projection
    up: Projection
    down: Projection
    activation: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        """[T, hidden] to [T, hidden]."""
        return self.down(self.activation(self.gate(x)) * self.up(x))


# --- rotary position embedding -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rotation:
    """Cosine and sine for the rows of one forward, [T, 1, head_dim / 2] each, float32."""

    cos: Tensor
    sin: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Rotate the pairs (i, i + head_dim / 2) of every head of [T, heads, head_dim]."""
        first, second = x.float().chunk(2, dim=-1)
        rotated = torch.cat(
            (first * self.cos - second * self.sin, second * self.cos + first * self.sin), dim=-1
        )
        return rotated.to(x.dtype)


class Rope:
    """Rotary position embedding (arXiv 2104.09864) with the configuration's scaling."""

    def __init__(self, config: ModelConfig, device: torch.device) -> None:
        frequencies = inverse_frequencies(config)  # [head_dim / 2]
        self._frequencies = frequencies.to(device)
        scaling = config.rope_scaling
        self._factor = scaling.attention_factor if isinstance(scaling, YarnScaling) else 1.0

    def at(self, positions: Tensor) -> Rotation:
        """The rotation of rows at ``positions``, [T]."""
        angles = (positions.float()[:, None] * self._frequencies)[:, None]
        cos, sin = angles.cos(), angles.sin()
        return Rotation(cos * self._factor, sin * self._factor)


def inverse_frequencies(config: ModelConfig) -> Tensor:
    """Radians per position of each rotated pair, [head_dim / 2], float32, on the CPU."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    plain = 1.0 / config.rope_theta**exponents
    return _scaled(plain, config.rope_scaling, config)


def _scaled(plain: Tensor, scaling: RopeScaling | None, config: ModelConfig) -> Tensor:
    match scaling:
        case None:
            return plain
        case LinearScaling(factor=factor):
            return plain / factor
        case FactorScaling(factors=factors):
            return plain / torch.tensor(factors, dtype=torch.float32)
        case Llama3Scaling():
            return _llama3(plain, scaling)
        case YarnScaling():
            return _yarn(plain, scaling, config)


def _llama3(plain: Tensor, scaling: Llama3Scaling) -> Tensor:
    """From the Llama 3.1 reference code: by how often a pair turns within the trained context."""
    turns = scaling.original_max_len * plain / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return kept * plain + (1.0 - kept) * plain / scaling.factor


def _yarn(plain: Tensor, scaling: YarnScaling, config: ModelConfig) -> Tensor:
    """YaRN section 3.2: pairs that turn often are kept, slow ones divided, a ramp between."""

    def dimension(turns: float) -> float:
        wavelength = scaling.original_max_len / (turns * 2 * math.pi)
        return config.head_dim * math.log(wavelength) / (2 * math.log(config.rope_theta))

    low, high = dimension(scaling.beta_fast), dimension(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0.0), min(high, config.head_dim - 1.0)
    if low == high:
        high += 0.001
    pairs = torch.arange(config.head_dim // 2, dtype=torch.float32)
    divided = ((pairs - low) / (high - low)).clamp(0.0, 1.0)
    return plain / scaling.factor * divided + plain * (1.0 - divided)
