"""What the native kernels compute, in plain numpy: the twins that tests hold them to."""

import numpy as np

from flm.kernels.packed import FloatArray, PackedMatrix

_HALF_BLOCK = 16


def rounded(x: FloatArray) -> FloatArray:
    """Activations [T, num_in] as products see them: 8 bits in blocks of 16."""
    num_rows, size = x.shape
    padded = np.zeros((num_rows, -(-size // _HALF_BLOCK) * _HALF_BLOCK), dtype=np.float32)
    padded[:, :size] = x
    blocks = padded.reshape(num_rows, -1, _HALF_BLOCK)
    top = np.abs(blocks).max(axis=-1, keepdims=True)
    inverse = np.divide(np.float32(127), top, out=np.zeros_like(top), where=top > 1e-30)
    quants = np.rint(blocks * inverse)
    values: FloatArray = (quants * (top / np.float32(127))).reshape(num_rows, -1)[:, :size]
    return values


def kept_in_bytes(x: FloatArray) -> FloatArray:
    """Keys or values [..., head_dim] as a cache of 8 bits gives them back: bytes times a scale in
    bfloat16, which is rounded up."""
    scales = np.abs(x).max(axis=-1, keepdims=True) / np.float32(127)
    scales = ((scales.view(np.uint32) + 0xFFFF) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales > 1e-30)
    values: FloatArray = np.rint(x * inverse) * scales
    return values


def linear(x: FloatArray, matrix: PackedMatrix) -> FloatArray:
    """``x`` [T, num_in] times the matrix, [T, num_out]."""
    exact = rounded(x).astype(np.float64) @ matrix.dequantised().astype(np.float64).T
    return exact.astype(np.float32)
