"""Products whose weights are kept in 8 or 4 bits and widened on the way: torch's own kernels.

They gain memory, and speed where a product waits for its weights: on a CUDA device, for a few
rows. The other factor stays as it is. Each has a twin in plain torch, which serves where torch has
no kernel for the device, and which every kernel is tried against before it is used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import torch
from torch import Tensor
from torch.nn import functional

WeightFormat = Literal["int8", "int4"]
GROUP: Final = 32
"""Weights of a row that share a scale and a zero in 4 bits."""
_INNER_TILES: Final = 2
_TOLERANCE: Final = 0.02


@dataclass(frozen=True, slots=True)
class Int8Weights:
    """[out, in]: ``values`` in int8 times ``scales`` [out], one a row."""

    values: Tensor
    scales: Tensor

    def widened(self) -> Tensor:
        """The weights as they are multiplied, [out, in]."""
        return self.values.to(self.scales.dtype) * self.scales[:, None]


@dataclass(frozen=True, slots=True)
class Int4Weights:
    """[out, in] in groups of ``GROUP``: (value - 8) * scale + zero. ``values`` is int32 [out, in]
    with numbers from 0 to 15, ``scales_and_zeros`` [in / GROUP, out, 2]."""

    values: Tensor
    scales_and_zeros: Tensor

    def widened(self) -> Tensor:
        """The weights as they are multiplied, [out, in]."""
        scales, zeros = self.scales_and_zeros.unbind(dim=2)
        grouped = _grouped(self.values.to(scales.dtype)) - 8
        return (grouped * scales.T[:, :, None] + zeros.T[:, :, None]).flatten(1)


def _grouped(rows: Tensor) -> Tensor:
    """[out, in] to [out, in / GROUP, GROUP]."""
    return rows.view(rows.shape[0], rows.shape[1] // GROUP, GROUP)


def round_to_int8(weight: Tensor) -> Int8Weights:
    """Each row divided by its own largest number: [out, in] in any float format, which the scales
    keep."""
    largest = weight.float().abs().amax(dim=1)
    scales = (largest / 127).clamp_min(torch.finfo(torch.float32).tiny).to(weight.dtype)
    scales = scales.clamp_min(torch.finfo(weight.dtype).tiny)
    values = (weight.float() / scales.float()[:, None]).round().clamp(-127, 127)
    return Int8Weights(values.to(torch.int8), scales)


def round_to_int4(weight: Tensor) -> Int4Weights:
    """Each group of a row spread over 16 steps from its smallest number to its largest."""
    groups = _grouped(weight.float().contiguous())
    low, high = groups.amin(dim=2), groups.amax(dim=2)
    tiny = torch.finfo(weight.dtype).tiny
    scales = ((high - low) / 15).clamp_min(tiny).to(weight.dtype)
    zeros = (low + 8 * scales.float()).to(weight.dtype)
    steps = (groups - zeros.float()[:, :, None]) / scales.float()[:, :, None] + 8
    values = steps.round().clamp(0, 15).to(torch.int32).flatten(1)
    return Int4Weights(values, torch.stack((scales.T, zeros.T), dim=2).contiguous())


@dataclass(frozen=True, slots=True)
class WeightOnlyLinear:
    """``x @ weight.T + bias`` with quantised weights: [T, in] to [T, out]."""

    multiply: Callable[[Tensor], Tensor]
    num_out: int
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        """The product."""
        if x.shape[0] == 0:
            # torch's kernels end the process.
            return x.new_empty(0, self.num_out)
        out = self.multiply(x)
        return out if self.bias is None else out + self.bias


def weight_only(weight: Tensor, bias: Tensor | None, asked: WeightFormat) -> WeightOnlyLinear:
    """The product with ``weight`` [out, in] kept in the format; a row that does not divide into
    groups is kept in 8 bits."""
    num_out, num_in = weight.shape
    format_ = "int8" if num_in % GROUP else asked
    # Beyond whole tiles torch's kernels read what is not theirs.
    fits = num_in % GROUP == 0 and num_out % 16 == 0
    kernel = _kernel(format_, weight.device, weight.dtype) if fits else None
    make = kernel if kernel is not None else _TWINS[format_]
    return WeightOnlyLinear(make(weight), num_out, bias)


# --- the kernels and their twins ---------------------------------------------------------------

Maker = Callable[[Tensor], Callable[[Tensor], Tensor]]
"""From weights [out, in] to the product with them."""


def _int8_twin(weight: Tensor) -> Callable[[Tensor], Tensor]:
    own = round_to_int8(weight)
    return lambda x: functional.linear(x, own.values.to(x.dtype)) * own.scales


def _int4_twin(weight: Tensor) -> Callable[[Tensor], Tensor]:
    own = round_to_int4(weight)
    packed = (own.values[:, ::2] | own.values[:, 1::2] << 4).to(torch.uint8)
    shape, scales_and_zeros = own.values.shape, own.scales_and_zeros

    def multiply(x: Tensor) -> Tensor:
        values = torch.stack((packed & 15, packed >> 4), dim=2).view(shape)
        return functional.linear(x, Int4Weights(values, scales_and_zeros).widened())

    return multiply


def _int8_kernel(weight: Tensor) -> Callable[[Tensor], Tensor]:
    own = round_to_int8(weight)
    return lambda x: torch.ops.aten._weight_int8pack_mm(x, own.values, own.scales)


def _int4_kernel(weight: Tensor) -> Callable[[Tensor], Tensor]:
    own, aten = round_to_int4(weight), torch.ops.aten
    scales_and_zeros = own.scales_and_zeros
    if weight.device.type == "cpu":
        on_cpu = aten._convert_weight_to_int4pack_for_cpu(own.values, _INNER_TILES)
        return lambda x: aten._weight_int4pack_mm_for_cpu(x, on_cpu, GROUP, scales_and_zeros)
    # Here the kernel wants two values in a byte, the even one in the upper half.
    bytes_ = (own.values[:, ::2] << 4 | own.values[:, 1::2]).to(torch.uint8)
    packed = aten._convert_weight_to_int4pack(bytes_, _INNER_TILES)
    return lambda x: aten._weight_int4pack_mm(x, packed, GROUP, scales_and_zeros)


_KERNELS: Final[dict[WeightFormat, Maker]] = {"int8": _int8_kernel, "int4": _int4_kernel}
_TWINS: Final[dict[WeightFormat, Maker]] = {"int8": _int8_twin, "int4": _int4_twin}


@cache
def _kernel(format_: WeightFormat, device: torch.device, dtype: torch.dtype) -> Maker | None:
    """torch's kernel, if there is one that works here."""
    return _KERNELS[format_] if problem_of(format_, device, dtype) is None else None


def problem_of(format_: WeightFormat, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why torch's kernel cannot be used on the device: it is missing, or its products are not
    those of the twin. None when it can."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(64, 4 * GROUP, generator=generator).to(device, dtype)
    for num_rows in (1, 5, 33):
        x = torch.randn(num_rows, 4 * GROUP, generator=generator).to(device, dtype)
        wanted = _TWINS[format_](weight)(x).float()
        try:
            found = _KERNELS[format_](weight)(x).float()
        except (RuntimeError, NotImplementedError) as error:
            return str(error).partition("\n")[0]
        if not bool(((found - wanted).abs() <= _TOLERANCE * wanted.abs().max()).all()):
            return "its products are wrong"
    return None
