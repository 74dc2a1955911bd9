"""The header of a GGUF file: metadata and the table of tensors, no tensor data.

The gguf library's own reader makes several numpy objects for every string of the vocabulary and
takes seconds over a large one; this one takes a tenth of that. Layout:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGUF_DEFAULT_ALIGNMENT, GGMLQuantizationType

from flm.errors import ModelFileError

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_STRING, _ARRAY = 8, 9
_SCALARS: Final[Mapping[int, struct.Struct]] = {
    code: struct.Struct(f"<{letter}")
    for code, letter in {
        0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
    }.items()
}  # fmt: skip
_DTYPES: Final = {
    0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?",
    10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_MAX_DIMENSIONS: Final = 4
_MAX_NESTING: Final = 4


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """Where one tensor lies. ``shape`` has the rows first (GGUF stores it reversed)."""

    name: str
    path: Path
    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    num_bytes: int

    @property
    def num_elements(self) -> int:
        """Weights in the tensor."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """One file's metadata (arrays as tuples) and tensors."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GGUFTensor]


def read_gguf_header(path: Path) -> GGUFHeader:
    """Read the header of ``path``.

    Raises ModelFileError where the file is missing, no GGUF, of an unknown version, truncated
    or damaged.
    """
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) == 0:
                raise _damaged(path, "the file is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Parser(path, data).header()
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be read: {error.strerror}. Check the path and its rights."
        ) from error
    except (struct.error, UnicodeDecodeError, OverflowError) as error:
        raise _damaged(path, f"its header ends early ({error})") from error


def _damaged(path: Path, problem: str) -> ModelFileError:
    return ModelFileError(f"{path} is damaged: {problem}. Fetch the file again.")


class _Parser:
    """A cursor over one header. ``_offset`` is the next byte to read."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._size = len(data)
        self._offset = 0

    def header(self) -> GGUFHeader:
        num_tensors, num_pairs = self._preamble()
        metadata = {}
        for _ in range(num_pairs):
            key = self._string()
            metadata[key] = self._value(self._scalar(_U32))
        tensors = self._tensors(num_tensors, metadata)
        return GGUFHeader(self._path, metadata, tensors)

    def _preamble(self) -> tuple[int, int]:
        if self._take(4) != _MAGIC:
            raise ModelFileError(
                f"{self._path} is not a GGUF file. Name a .gguf file or a Hugging Face folder."
            )
        version = self._scalar(_U32)
        if version not in _VERSIONS:
            swapped = version & 0xFFFF == 0
            kind = "a big-endian file" if swapped else f"GGUF version {version}"
            raise ModelFileError(
                f"{self._path}: {kind} cannot be read, only little-endian versions 2 and 3. "
                "Convert the model with a current llama.cpp."
            )
        num_tensors = self._count(bytes_each=24)
        num_pairs = self._count(bytes_each=12)
        return num_tensors, num_pairs

    # --- values ---

    def _take(self, num_bytes: int) -> bytes:
        end = self._offset + num_bytes
        if end > self._size:
            raise _damaged(self._path, "its header ends early")
        piece = self._data[self._offset : end]
        self._offset = end
        return piece

    def _scalar(self, form: struct.Struct) -> Any:
        (value,) = form.unpack_from(self._data, self._offset)
        self._offset += form.size
        return value

    def _count(self, *, bytes_each: int) -> int:
        """A number of things that need ``bytes_each`` at least, so that a damaged one cannot
        ask for more than the file holds."""
        count: int = self._scalar(_U64)
        if count * bytes_each > self._size - self._offset:
            raise _damaged(self._path, f"it promises {count} entries in {self._size} bytes")
        return count

    def _string(self) -> str:
        return self._take(self._scalar(_U64)).decode("utf-8", "replace")

    def _value(self, code: int, nesting: int = 0) -> Any:
        if code in _SCALARS:
            return self._scalar(_SCALARS[code])
        if code == _STRING:
            return self._string()
        if code == _ARRAY and nesting < _MAX_NESTING:
            return self._array(nesting)
        raise _damaged(self._path, f"a value of unknown type {code}")

    def _array(self, nesting: int) -> tuple[Any, ...]:
        code = self._scalar(_U32)
        if code in _DTYPES:
            dtype = np.dtype(_DTYPES[code])
            count = self._count(bytes_each=dtype.itemsize)
            return tuple(np.frombuffer(self._take(count * dtype.itemsize), dtype).tolist())
        count = self._count(bytes_each=8)
        if code == _STRING:
            return self._strings(count)
        return tuple(self._value(code, nesting + 1) for _ in range(count))

    def _strings(self, count: int) -> tuple[str, ...]:
        # The one hot loop: a vocabulary and its merges are hundreds of thousands of strings.
        data, offset, read_length = self._data, self._offset, _U64.unpack_from
        strings = []
        for _ in range(count):
            start = offset + 8
            offset = start + read_length(data, offset)[0]
            strings.append(data[start:offset].decode("utf-8", "replace"))
        if offset > self._size:
            raise _damaged(self._path, "its header ends early")
        self._offset = offset
        return tuple(strings)

    # --- tensors ---

    def _tensors(self, count: int, metadata: Mapping[str, Any]) -> dict[str, GGUFTensor]:
        entries = [self._entry() for _ in range(count)]
        alignment = metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise _damaged(self._path, f"its alignment is {alignment}")
        start = -(-self._offset // alignment) * alignment
        tensors = [self._located(entry, start) for entry in entries]
        self._check_size(tensors)
        return {tensor.name: tensor for tensor in tensors}

    def _entry(self) -> "_Entry":
        name = self._string()
        num_dimensions = self._scalar(_U32)
        if num_dimensions > _MAX_DIMENSIONS:
            raise _damaged(self._path, f"tensor {name[:80]!r} has {num_dimensions} dimensions")
        shape = tuple(self._scalar(_U64) for _ in range(num_dimensions))
        kind: int = self._scalar(_U32)
        return _Entry(name, tuple(reversed(shape)), kind, self._scalar(_U64))

    def _located(self, entry: "_Entry", start: int) -> GGUFTensor:
        try:
            kind = GGMLQuantizationType(entry.kind)
        except ValueError as error:
            raise ModelFileError(
                f"{self._path}: tensor {entry.name!r} has the unknown type {entry.kind}. "
                "Use a file of another quantisation."
            ) from error
        block_len, block_bytes = GGML_QUANT_SIZES[kind]
        row_len = entry.shape[-1] if entry.shape else 1
        if row_len % block_len:
            raise _damaged(
                self._path, f"rows of tensor {entry.name!r} are no whole {kind.name} blocks"
            )
        num_elements = 1
        for size in entry.shape:
            num_elements *= size
        num_bytes = num_elements // block_len * block_bytes
        offset = start + entry.offset
        return GGUFTensor(entry.name, self._path, kind, entry.shape, offset, num_bytes)

    def _check_size(self, tensors: list[GGUFTensor]) -> None:
        end = max((tensor.offset + tensor.num_bytes for tensor in tensors), default=0)
        if end > self._size:
            raise _damaged(self._path, f"it ends {end - self._size} bytes early")


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int
