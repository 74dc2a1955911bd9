"""Runs the tests of the native kernels as they are on ARM, on any machine.

    python scripts/on_arm.py [flags of the compiler, -mcpu=neoverse-n1 by default]

``aarch64-linux-gnu-g++`` (or ``CXX``) builds the kernels, and ``qemu-aarch64-static`` runs them
in a process of their own (on_arm.cpp). Where builds for other instruction sets are tested, those
are of this machine. It says nothing about speed.
"""

import ctypes
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from ctypes import Structure, c_void_p
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

import numpy as np
import pytest

from flm.kernels import build as building
from flm.kernels.library import Batch, Kernels, Layer, Matrix, Model

ROOT: Final = Path(__file__).parent.parent
TESTS: Final = (
    *(f"tests/kernels/test_{name}.py" for name in ("native", "select", "linear")),
    "tests/models/test_fused.py",
)
# In the order of on_arm.cpp.
NAMES: Final = ("forward", "linear", "product", "best", "are_numbers", "rule_out", "read_row")
_PAGE: Final = 32
_PARTS: Final = ("query", "key", "value", "output", "gate", "up", "down")


class Server:
    """The process with the kernels. Memory is copied there for a call, and what the call wrote is
    copied back."""

    def __init__(self, program: Path) -> None:
        command = ["qemu-aarch64-static", str(program)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._results: list[tuple[int, int, int]] = []

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def memory(self, address: int | None, size: int, *, is_result: bool = False) -> int:
        """The address of a copy over there; 0 for none."""
        if address is None:
            return 0
        there = self._made(ctypes.string_at(address, size))
        if is_result:
            self._results.append((address, there, size))
        return there

    def structure(self, one: Structure | ctypes.Array[Any]) -> int:
        """The address of a copy over there."""
        return self._made(bytes(one))

    def matrix(self, one: Matrix) -> Matrix:
        """The structure with its memory over there."""
        blocks, panels = -(-one.num_in // 32), -(-one.num_out // 16)
        size = -(-blocks * (320 if one.format == 0 else 544) // 64) * 64
        copy = Matrix.from_buffer_copy(one)
        copy.panels = self.memory(one.panels, panels * size)
        copy.bias = self.memory(one.bias, panels * 64)
        return copy

    def call(self, name: str, *arguments: int) -> int:
        """The result of a function. Gives up all memory over there."""
        self._ask("c", NAMES.index(name), *arguments)
        result = self._answer()
        for address, there, size in self._results:
            self._ask("r", there, size)
            ctypes.memmove(address, self._read(size), size)
        self._results.clear()
        self._ask("f")
        return result

    def _made(self, data: bytes) -> int:
        self._ask("m", len(data), data=data)
        return self._answer()

    def _ask(self, what: str, *words: int, data: bytes = b"") -> None:
        stream = self._process.stdin
        assert stream is not None
        stream.write(struct.pack("<10Q", ord(what), *words, *[0] * (9 - len(words))) + data)
        stream.flush()

    def _answer(self) -> int:
        return int.from_bytes(self._read(8), "little")

    def _read(self, size: int) -> bytes:
        stream = self._process.stdout
        assert stream is not None
        data = stream.read(size)
        assert len(data) == size, "the process with the kernels has ended"
        return data


# --- the functions of the library, as ctypes would call them -----------------------------------


def _linear(to: Server, matrix: Any, x: int, rows: int, out: int, threads: int) -> int:
    one = matrix._obj
    there = to.memory(out, 4 * rows * one.num_out, is_result=True)
    given = to.memory(x, 4 * rows * one.num_in)
    return to.call("linear", to.structure(to.matrix(one)), given, rows, there, threads)


def _read_row(to: Server, matrix: Any, row: int, out: int) -> int:
    one = matrix._obj
    there = to.memory(out, 4 * one.num_in, is_result=True)
    return to.call("read_row", to.structure(to.matrix(one)), row, there)


def _product(to: Server, weight: int, bias: int | None, num_out: int, *rest: int) -> int:
    num_in, x, rows, out, threads = rest
    given = (to.memory(weight, 4 * num_out * num_in), to.memory(bias, 4 * num_out))
    there = to.memory(out, 4 * rows * num_out, is_result=True)
    inputs = to.memory(x, 4 * rows * num_in)
    return to.call("product", *given, num_out, num_in, inputs, rows, there, threads)


def _best(to: Server, values: int, rows: int, count: int, wanted: int, *out: int) -> int:
    sizes = (4 * rows * wanted, 4 * rows * wanted, rows)
    there = [to.memory(a, size, is_result=True) for a, size in zip(out, sizes, strict=True)]
    return to.call("best", to.memory(values, 4 * rows * count), rows, count, wanted, *there)


def _are_numbers(to: Server, values: int, rows: int, count: int, out: int) -> int:
    there = to.memory(out, rows, is_result=True)
    return to.call("are_numbers", to.memory(values, 4 * rows * count), rows, count, there)


def _rule_out(to: Server, values: int, count: int, mask: bytes, size: int) -> int:
    there = to.memory(values, 4 * count, is_result=True)
    bits = ctypes.create_string_buffer(mask, size + 1)
    return to.call("rule_out", there, count, to.structure(bits), size)


def _forward(to: Server, model: Any, batch: Any) -> int:
    one, rows = Model.from_buffer_copy(model._obj), Batch.from_buffer_copy(batch._obj)
    table_bytes = ctypes.string_at(rows.tables, 4 * rows.num_runs * rows.table_width)
    tables = np.frombuffer(table_bytes, np.int32)
    per_head = (one.head_dim + 2) * _PAGE if one.kv_format else one.head_dim * _PAGE * 2
    cache = (int(tables.max()) + 1) * one.num_kv_heads * per_head
    layers = [_layer(to, one, one.layers[i], cache) for i in range(one.num_layers)]
    there = to.structure((Layer * one.num_layers)(*layers))
    one.layers = ctypes.cast(c_void_p(there), ctypes.POINTER(Layer))
    one.embedding, one.head = to.matrix(one.embedding), to.matrix(one.head)
    one.norm = to.memory(one.norm, 4 * one.hidden)
    sizes = {
        "token_ids": rows.num_rows,
        "runs": 3 * rows.num_runs,
        "tables": tables.size,
        "cosines": rows.num_rows * one.head_dim // 2,
        "sines": rows.num_rows * one.head_dim // 2,
        "logit_rows": rows.num_logits,
    }
    for name, size in sizes.items():
        setattr(rows, name, to.memory(getattr(rows, name), 4 * size))
    rows.logits = to.memory(rows.logits, 4 * rows.num_logits * one.vocab, is_result=True)
    return to.call("forward", to.structure(one), to.structure(rows))


def _layer(to: Server, model: Model, layer: Layer, cache: int) -> Layer:
    copy = Layer.from_buffer_copy(layer)
    for name in _PARTS:
        setattr(copy, name, to.matrix(getattr(layer, name)))
    sizes = {"attention_norm": model.hidden, "mlp_norm": model.hidden}
    sizes |= {"query_norm": model.head_dim, "key_norm": model.head_dim}
    for name, size in sizes.items():
        setattr(copy, name, to.memory(getattr(layer, name), 4 * size))
    copy.keys = to.memory(layer.keys, cache, is_result=True)
    copy.values = to.memory(layer.values, cache, is_result=True)
    return copy


FUNCTIONS: Final[dict[str, Callable[..., int]]] = {
    "flm_forward": _forward,
    "flm_linear": _linear,
    "flm_product": _product,
    "flm_best": _best,
    "flm_are_numbers": _are_numbers,
    "flm_rule_out": _rule_out,
    "flm_read_row": _read_row,
}


def kernels_of(server: Server) -> Kernels:
    """The kernels in that process."""
    functions = SimpleNamespace(**{name: partial(f, server) for name, f in FUNCTIONS.items()})
    with mock.patch("ctypes.CDLL", return_value=functions):
        return Kernels(Path("on_arm"))


def main() -> int:
    """Build, test, and give pytest's exit status."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "kernels"
        compiler = os.environ.get("CXX", "aarch64-linux-gnu-g++")
        flags = ["-O3", "-std=c++17", "-ffp-contract=off", "-fno-math-errno", "-static", "-fopenmp"]
        source = str(ROOT / "scripts" / "on_arm.cpp")
        target = sys.argv[1:] or ["-mcpu=neoverse-n1"]
        subprocess.run([compiler, *flags, *target, source, "-o", str(program)], check=True)
        server = Server(program)
        try:
            found = building.Found(kernels_of(server))
            with mock.patch.object(building, "load_kernels", return_value=found):
                return int(pytest.main([f"--rootdir={ROOT}", *(str(ROOT / t) for t in TESTS)]))
        finally:
            server.close()


if __name__ == "__main__":
    sys.exit(main())
