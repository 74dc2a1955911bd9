"""Quantised weights in the layout that the native kernels read (native/matrix.h).

A weight is ``quant * scale`` (``q8``, quants -128..127) or ``quant * scale + minimum`` (``q4``,
quants 0..15), with half-precision scales and minima for blocks of 32 inputs of one output.
"""

import contextlib
import mmap
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

Format = Literal["q4", "q8"]
FloatArray = npt.NDArray[np.float32]
HalfArray = npt.NDArray[np.float16]

BLOCK: Final = 32
LANES: Final = 16
_ALIGNMENT: Final = 64
_PIECE_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A matrix [num_out, num_in]; ``panels`` is its memory, 64-byte aligned."""

    format: Format
    num_out: int
    num_in: int
    panels: npt.NDArray[np.uint8]

    @property
    def num_bytes(self) -> int:
        """Bytes it takes."""
        return self.panels.nbytes

    def dequantised(self) -> FloatArray:
        """The weights as the kernels see them, [num_out, num_in]."""
        blocks = -(-self.num_in // BLOCK)
        panels = self.panels.reshape(-1, _panel_bytes(self.format, blocks))
        size = _quant_bytes(self.format)
        quants = panels[:, : blocks * size].reshape(-1, blocks, size)
        halves = panels[:, blocks * size :].view(np.float16)
        scales = halves[:, : blocks * LANES].reshape(-1, blocks, LANES)
        values = _unpacked(self.format, quants) * scales.transpose(0, 2, 1)[..., None]
        if self.format == "q4":
            minima = halves[:, blocks * LANES : 2 * blocks * LANES].reshape(scales.shape)
            values = values + minima.transpose(0, 2, 1)[..., None]
        rows = values.astype(np.float32).reshape(-1, blocks * BLOCK)
        return np.ascontiguousarray(rows[: self.num_out, : self.num_in])


class Memory:
    """Where matrices are put: next to each other in large pieces, which the system can back with
    huge pages, in the order of their use."""

    def __init__(self) -> None:
        self._piece = np.empty(0, dtype=np.uint8)

    def take(self, size: int) -> npt.NDArray[np.uint8]:
        """Zeroed bytes at a multiple of 64; they live as long as somebody holds them."""
        if size > self._piece.size:
            self._piece = _piece(max(size, _PIECE_BYTES))
        taken = self._piece[:size]
        self._piece = self._piece[-(-size // _ALIGNMENT) * _ALIGNMENT :]
        return taken


def _piece(size: int) -> npt.NDArray[np.uint8]:
    # Private: shared memory has no huge pages on most systems.
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype=np.uint8)


def pack_q4(
    quants: npt.NDArray[np.uint8], scales: HalfArray, minima: HalfArray, memory: Memory
) -> PackedMatrix:
    """From quants [num_out, num_in] in 0..15, scales and minima [num_out, num_in / 32]."""
    num_out, num_in = quants.shape
    lanes = _by_lane(quants, LANES)  # [panels, 16, blocks, 32]
    low, high = lanes[..., : BLOCK // 2], lanes[..., BLOCK // 2 :]
    nibbles = low | (high << 4)
    packed = _interleaved(nibbles, BLOCK // 8)
    return PackedMatrix("q4", num_out, num_in, _joined("q4", packed, memory, scales, minima))


def pack_q8(quants: npt.NDArray[np.int8], scales: HalfArray, memory: Memory) -> PackedMatrix:
    """From quants [num_out, num_in] and scales [num_out, num_in / 32]."""
    num_out, num_in = quants.shape
    packed = _interleaved(_by_lane(quants, LANES).view(np.uint8), BLOCK // 4)
    return PackedMatrix("q8", num_out, num_in, _joined("q8", packed, memory, scales))


def quantised(weights: FloatArray, memory: Memory) -> PackedMatrix:
    """Weights [num_out, num_in] rounded to 8 bits: to 1/127 of the largest of each block."""
    num_out, num_in = weights.shape
    blocks = np.zeros((num_out, -(-num_in // BLOCK) * BLOCK), dtype=np.float32)
    blocks[:, :num_in] = weights
    blocks = blocks.reshape(num_out, -1, BLOCK)
    scales = (np.abs(blocks).max(axis=-1) / 127).astype(np.float16)
    exact = scales.astype(np.float32)
    inverse = np.divide(1, exact, out=np.zeros_like(exact), where=exact > 0)
    quants = np.clip(np.rint(blocks * inverse[..., None]), -127, 127).astype(np.int8)
    return pack_q8(quants.reshape(num_out, -1)[:, :num_in], scales, memory)


def _quant_bytes(format_: Format) -> int:
    return 256 if format_ == "q4" else 512


def _panel_bytes(format_: Format, blocks: int) -> int:
    size = blocks * (_quant_bytes(format_) + (64 if format_ == "q4" else 32))
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _by_lane(quants: npt.NDArray[Any], lanes: int) -> npt.NDArray[Any]:
    """[num_out, num_in] to [panels, 16, blocks, 32], filled up with zeros."""
    num_out, num_in = quants.shape
    panels, blocks = -(-num_out // lanes), -(-num_in // BLOCK)
    if (num_out, num_in) != (panels * lanes, blocks * BLOCK):
        padded = np.zeros((panels * lanes, blocks * BLOCK), dtype=quants.dtype)
        padded[:num_out, :num_in] = quants
        quants = padded
    return quants.reshape(panels, lanes, blocks, BLOCK)


def _interleaved(quants: npt.NDArray[np.uint8], vectors: int) -> npt.NDArray[np.uint8]:
    """[panels, 16, blocks, 4 * vectors] to [panels, blocks * vectors * 64]: a lane an output."""
    panels, lanes, blocks, _ = quants.shape
    fours = quants.reshape(panels, lanes, blocks, vectors, 4)
    return np.ascontiguousarray(fours.transpose(0, 2, 3, 1, 4)).reshape(panels, -1)


def _unpacked(format_: Format, quants: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    """[panels, blocks, bytes] to [panels, 16, blocks, 32]."""
    panels, blocks, size = quants.shape
    fours = quants.reshape(panels, blocks, size // 64, LANES, 4).transpose(0, 3, 1, 2, 4)
    values = fours.reshape(panels, LANES, blocks, size // LANES)
    if format_ == "q8":
        return np.ascontiguousarray(values).view(np.int8).astype(np.float32)
    return np.concatenate((values & 15, values >> 4), axis=-1).astype(np.float32)


def _joined(
    format_: Format, quants: npt.NDArray[np.uint8], memory: Memory, *halves: HalfArray
) -> npt.NDArray[np.uint8]:
    panels, size = quants.shape
    blocks = size // _quant_bytes(format_)
    total = _panel_bytes(format_, blocks)
    out = memory.take(panels * total).reshape(panels, total)
    out[:, :size] = quants
    for values in halves:
        padded = np.zeros((panels * LANES, blocks), dtype=np.float16)
        padded[: values.shape[0]] = values
        by_block = padded.reshape(panels, LANES, blocks).transpose(0, 2, 1)
        raw = np.ascontiguousarray(by_block).reshape(panels, -1).view(np.uint8)
        out[:, size : size + raw.shape[1]] = raw
        size += raw.shape[1]
    return out.reshape(-1)
