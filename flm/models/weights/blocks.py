"""GGUF's quantised blocks in the layout of the native kernels.

Q4_0, Q4_1 and Q8_0 keep every bit. Q4_K keeps its quants; the products of its two-level scales
are rounded to half precision. Every other type is rounded to 8 bits in blocks of 32.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
from gguf import quants
from gguf.constants import GGMLQuantizationType

from flm.kernels.packed import Memory, PackedMatrix, pack_q4, pack_q8, quantised

Bytes = npt.NDArray[np.uint8]

_NIBBLES: Final[Bytes] = np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)


def pack_blocks(rows: Bytes, kind: GGMLQuantizationType, memory: Memory) -> PackedMatrix:
    """The matrix stored in ``rows``, [num_out, bytes of a row].

    Raises NotImplementedError for a type that cannot be read.
    """
    known = _PACKERS.get(kind)
    if known is not None:
        return known(rows, memory)
    return quantised(np.asarray(quants.dequantize(rows, kind), dtype=np.float32), memory)


def _halves(raw: Bytes) -> npt.NDArray[np.float16]:
    return np.ascontiguousarray(raw).view(np.float16)


def _nibbles(raw: Bytes, num_out: int) -> Bytes:
    """[..., 16] bytes to [num_out, inputs]: low nibbles are the first half of a block."""
    return np.concatenate((raw & 15, raw >> 4), axis=-1).reshape(num_out, -1)


def _pack_q4_0(rows: Bytes, memory: Memory) -> PackedMatrix:
    blocks = rows.reshape(rows.shape[0], -1, 18)
    scales = _halves(blocks[..., :2])[..., 0]
    return pack_q4(
        _nibbles(blocks[..., 2:], rows.shape[0]), scales, scales * np.float16(-8), memory
    )


def _pack_q4_1(rows: Bytes, memory: Memory) -> PackedMatrix:
    blocks = rows.reshape(rows.shape[0], -1, 20)
    pairs = _halves(blocks[..., :4])
    return pack_q4(_nibbles(blocks[..., 4:], rows.shape[0]), pairs[..., 0], pairs[..., 1], memory)


def _pack_q8_0(rows: Bytes, memory: Memory) -> PackedMatrix:
    blocks = rows.reshape(rows.shape[0], -1, 34)
    values = np.ascontiguousarray(blocks[..., 2:]).view(np.int8)
    return pack_q8(values.reshape(rows.shape[0], -1), _halves(blocks[..., :2])[..., 0], memory)


def _pack_q4_k(rows: Bytes, memory: Memory) -> PackedMatrix:
    num_out = rows.shape[0]
    blocks = rows.reshape(-1, 144)  # 256 inputs each, in eight parts of 32
    steps = _halves(blocks[:, :4]).astype(np.float32)
    scales, minima = quants.Q4_K.get_scale_min(blocks[:, 4:16])  # [blocks, 8] each
    nibbles = np.bitwise_and(blocks[:, 16:].reshape(-1, 4, 1, 32) >> _NIBBLES, 15, dtype=np.uint8)
    return pack_q4(
        nibbles.reshape(num_out, -1),
        (steps[:, :1] * scales).astype(np.float16).reshape(num_out, -1),
        (-steps[:, 1:] * minima).astype(np.float16).reshape(num_out, -1),
        memory,
    )


_PACKERS: Final[Mapping[GGMLQuantizationType, Callable[[Bytes, Memory], PackedMatrix]]] = {
    GGMLQuantizationType.Q4_0: _pack_q4_0,
    GGMLQuantizationType.Q4_1: _pack_q4_1,
    GGMLQuantizationType.Q8_0: _pack_q8_0,
    GGMLQuantizationType.Q4_K: _pack_q4_k,
}
