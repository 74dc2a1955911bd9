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


def linear(x: FloatArray, matrix: PackedMatrix) -> FloatArray:
    """``x`` [T, num_in] times the matrix, [T, num_out]."""
    exact = rounded(x).astype(np.float64) @ matrix.dequantised().astype(np.float64).T
    return exact.astype(np.float32)
