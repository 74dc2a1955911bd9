"""The native kernels as ctypes sees them: structures, functions, and how they are found."""

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_float, c_int, c_int32, c_void_p
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from flm.kernels.packed import FloatArray, PackedMatrix


class Matrix(Structure):
    """``Matrix`` of native/matrix.h."""

    _fields_ = (
        ("panels", c_void_p),
        ("bias", c_void_p),
        ("num_out", c_int32),
        ("num_in", c_int32),
        ("format", c_int32),
        ("reserved", c_int32),
    )


class Layer(Structure):
    """``Layer`` of native/forward.cpp."""

    _fields_ = (
        *((name, Matrix) for name in ("query", "key", "value", "output", "gate", "up", "down")),
        *((name, c_void_p) for name in ("attention_norm", "mlp_norm", "query_norm", "key_norm")),
        ("keys", c_void_p),
        ("values", c_void_p),
    )


class Model(Structure):
    """``Model`` of native/forward.cpp."""

    _fields_ = (
        *((name, c_int32) for name in ("num_layers", "hidden", "inner", "num_heads")),
        *((name, c_int32) for name in ("num_kv_heads", "head_dim", "vocab", "num_threads")),
        ("eps", c_float),
        ("kv_format", c_int32),
        ("embedding", Matrix),
        ("head", Matrix),
        ("norm", c_void_p),
        ("layers", POINTER(Layer)),
    )


class Batch(Structure):
    """``Batch`` of native/forward.cpp."""

    _fields_ = (
        *((name, c_int32) for name in ("num_rows", "num_runs", "table_width", "num_logits")),
        *((name, c_void_p) for name in ("token_ids", "runs", "tables", "cosines", "sines")),
        ("logit_rows", c_void_p),
        ("logits", c_void_p),
    )


def matrix(packed: PackedMatrix, bias: FloatArray | None = None) -> Matrix:
    """The structure for a matrix; the caller keeps both arrays alive. ``bias`` is padded to a
    multiple of 16."""
    return Matrix(
        packed.panels.ctypes.data,
        None if bias is None else bias.ctypes.data,
        packed.num_out,
        packed.num_in,
        0 if packed.format == "q4" else 1,
        0,
    )


@dataclass(frozen=True, slots=True)
class Best:
    """The best of each row, best first, the lower id among equals: ``values`` and ``ids`` [B, K].
    A row that is not ``usable`` has NaN or plus infinity in it, or only minus infinity; its places
    mean nothing."""

    values: FloatArray
    ids: npt.NDArray[np.int32]
    usable: npt.NDArray[np.bool_]


class Kernels:
    """The functions of the library at ``path``.

    Raises OSError where it cannot be loaded.
    """

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self._forward = library.flm_forward
        self._forward.argtypes = (POINTER(Model), POINTER(Batch))
        self._linear = library.flm_linear
        self._linear.argtypes = (POINTER(Matrix), c_void_p, c_int, c_void_p, c_int)
        self._product = library.flm_product
        self._product.argtypes = (*(c_void_p,) * 2, c_int, c_int, c_void_p, c_int, c_void_p, c_int)
        self._product.restype = None
        self._read_row = library.flm_read_row
        self._read_row.argtypes = (POINTER(Matrix), c_int, c_void_p)
        self._read_row.restype = None
        self._best = library.flm_best
        self._best.argtypes = (c_void_p, c_int, c_int, c_int, c_void_p, c_void_p, c_void_p)
        self._are_numbers = library.flm_are_numbers
        self._are_numbers.argtypes = (c_void_p, c_int, c_int, c_void_p)
        self._are_numbers.restype = None
        self._rule_out = library.flm_rule_out
        self._rule_out.argtypes = (c_void_p, c_int, c_char_p, c_int)
        self._rule_out.restype = None

    def forward(self, model: Model, batch: Batch) -> None:
        """Run a batch through all layers; raises MemoryError where there is not enough."""
        if self._forward(ctypes.byref(model), ctypes.byref(batch)) != 0:
            raise MemoryError("There is not enough memory for the rows of a forward.")

    def linear(self, packed: PackedMatrix, x: FloatArray, num_threads: int) -> FloatArray:
        """``x`` [T, num_in] times the matrix, [T, num_out]; ``x`` is rounded to 8 bits."""
        x = np.ascontiguousarray(x, dtype=np.float32)
        out = np.empty((x.shape[0], packed.num_out), dtype=np.float32)
        one = matrix(packed)
        self._linear(ctypes.byref(one), x.ctypes.data, x.shape[0], out.ctypes.data, num_threads)
        return out

    def product(
        self, weight: FloatArray, bias: FloatArray | None, x: FloatArray, num_threads: int
    ) -> FloatArray:
        """``x`` [T, in] times ``weight`` [out, in] plus ``bias`` [out], [T, out], all contiguous.
        The bits of a row depend neither on the other rows nor on the number of threads."""
        out = np.empty((x.shape[0], weight.shape[0]), dtype=np.float32)
        self._product(
            weight.ctypes.data,
            None if bias is None else bias.ctypes.data,
            *weight.shape,
            x.ctypes.data,
            x.shape[0],
            out.ctypes.data,
            num_threads,
        )
        return out

    def best(self, logits: FloatArray, num_best: int) -> Best:
        """The ``num_best`` best of each row of ``logits`` [B, V], at most V."""
        logits = np.ascontiguousarray(logits)
        (num_rows, size), num_best = logits.shape, min(num_best, logits.shape[1])
        found = Best(
            np.empty((num_rows, num_best), dtype=np.float32),
            np.empty((num_rows, num_best), dtype=np.int32),
            np.empty(num_rows, dtype=np.bool_),
        )
        out = (found.values.ctypes.data, found.ids.ctypes.data, found.usable.ctypes.data)
        if self._best(logits.ctypes.data, num_rows, size, num_best, *out) != 0:
            raise MemoryError("There is not enough memory to choose a token.")
        return found

    def are_numbers(self, logits: FloatArray) -> npt.NDArray[np.bool_]:
        """Whether each row of ``logits`` [B, V] has neither NaN nor plus infinity in it, [B]."""
        logits = np.ascontiguousarray(logits)
        found = np.empty(logits.shape[0], dtype=np.bool_)
        self._are_numbers(logits.ctypes.data, *logits.shape, found.ctypes.data)
        return found

    def rule_out(self, logits: FloatArray, mask: bytes) -> None:
        """Set those of ``logits`` [V], neighbours in memory, to minus infinity whose bit in
        ``mask`` is 0 or missing; the lowest bit of the first byte comes first."""
        self._rule_out(logits.ctypes.data, logits.size, mask, len(mask))

    def read_row(self, packed: PackedMatrix, row: int) -> npt.NDArray[np.float32]:
        """Row ``row`` of the matrix, [num_in]."""
        out = np.empty(packed.num_in, dtype=np.float32)
        one = matrix(packed)
        self._read_row(ctypes.byref(one), row, out.ctypes.data)
        return out
