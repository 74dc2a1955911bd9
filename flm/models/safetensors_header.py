"""The headers of safetensors files: names, types and shapes of tensors, no tensor data.

Layout: https://huggingface.co/docs/safetensors (a length, a JSON object, the bytes).
"""

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flm.errors import ModelFileError
from flm.models.config import MAX_SIZE
from flm.models.json_file import read_object

_MAX_HEADER: Final = 100_000_000
_LENGTH: Final = struct.Struct("<Q")
_WEIGHTS: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class SafetensorsTensor:
    """Where one tensor lies; ``dtype`` is the format's own name (F32, F16, BF16, ...)."""

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_elements(self) -> int:
        """Weights in the tensor."""
        product = 1
        for size in self.shape:
            product *= size
        return product


def read_safetensors_index(folder: Path) -> dict[str, SafetensorsTensor]:
    """Every tensor of the model in ``folder``, single or sharded.

    Raises ModelFileError for a missing, truncated or damaged file and for a shard that lacks a
    tensor the index promises.
    """
    single = folder / _WEIGHTS
    if single.is_file():
        return _read_header(single)
    if not (folder / _INDEX).is_file():
        raise ModelFileError(
            f"{folder} has neither {_WEIGHTS} nor {_INDEX}. Fetch the model again, or convert "
            "its weights to safetensors."
        )
    return _read_shards(folder)


def _read_shards(folder: Path) -> dict[str, SafetensorsTensor]:
    weight_map = read_object(folder / _INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise _damaged(folder / _INDEX, "it has no weight_map")
    found: dict[str, SafetensorsTensor] = {}
    for shard in sorted({str(value) for value in weight_map.values()}):
        if Path(shard).name != shard:
            raise _damaged(folder / _INDEX, f"it names the shard {shard!r}, not a file beside it")
        found |= _read_header(folder / shard)
    for name, shard in weight_map.items():
        if name not in found or found[name].path.name != shard:
            raise _damaged(folder / str(shard), f"the tensor {name!r} is missing")
    return found


def _read_header(path: Path) -> dict[str, SafetensorsTensor]:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = _header_len(path, file.read(8), size)
            header = json.loads(file.read(length))
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be read: {error.strerror}. Fetch the model again."
        ) from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "its header is not JSON") from error
    if not isinstance(header, dict):
        raise _damaged(path, "its header is not an object")
    entries = {name: header[name] for name in header if name != "__metadata__"}
    ends = [_end(path, name, entry) for name, entry in entries.items()]
    missing = 8 + length + max(ends, default=0) - size
    if missing > 0:
        raise _damaged(path, f"it ends {missing} bytes early")
    return {name: _tensor(path, name, entry) for name, entry in entries.items()}


def _header_len(path: Path, prefix: bytes, size: int) -> int:
    if len(prefix) < 8:
        raise _damaged(path, "it is too short")
    (length,) = _LENGTH.unpack(prefix)
    if length > min(size - 8, _MAX_HEADER):
        raise _damaged(path, "its header is longer than the file")
    return int(length)


def _end(path: Path, name: str, entry: Any) -> int:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if isinstance(offsets, list) and len(offsets) == 2 and isinstance(offsets[1], int):
        return offsets[1]
    raise _damaged(path, f"the entry of tensor {name[:80]!r} is wrong")


def _tensor(path: Path, name: str, entry: dict[str, Any]) -> SafetensorsTensor:
    dtype, shape = entry.get("dtype"), entry.get("shape")
    is_shape = isinstance(shape, list) and all(
        isinstance(size, int) and 0 <= size < MAX_SIZE for size in shape
    )
    if isinstance(dtype, str) and isinstance(shape, list) and is_shape:
        return SafetensorsTensor(name, path, dtype, tuple(shape))
    raise _damaged(path, f"the entry of tensor {name[:80]!r} is wrong")


def _damaged(path: Path, problem: str) -> ModelFileError:
    return ModelFileError(f"{path} is damaged: {problem}. Fetch the model again.")
