"""Weights from GGUF files, dequantised."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
import torch
from gguf import quants
from gguf.constants import GGMLQuantizationType
from torch import Tensor

from flm.errors import ModelFileError
from flm.kernels.packed import Memory, PackedMatrix
from flm.models.config import ModelConfig
from flm.models.gguf_header import GGUFTensor
from flm.models.weights.blocks import pack_blocks
from flm.models.weights.names import gguf_name
from flm.models.weights.shape import check_shape, missing_tensor

_PLAIN: Final[Mapping[GGMLQuantizationType, torch.dtype]] = {
    GGMLQuantizationType.F32: torch.float32,
    GGMLQuantizationType.F16: torch.float16,
    GGMLQuantizationType.BF16: torch.bfloat16,
    GGMLQuantizationType.F64: torch.float64,
}


class GGUFWeights:
    """Reads tensors one by one; plain ones in the wanted dtype share the file's memory."""

    def __init__(
        self,
        path: Path,
        tensors: Mapping[str, GGUFTensor],
        config: ModelConfig,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._path = path
        self._tensors = tensors
        self._config = config
        self._dtype = dtype
        self._device = device
        self._memory = Memory()
        self._maps: dict[Path, npt.NDArray[np.uint8]] = {}

    def tensor(self, name: str, *shape: int) -> Tensor:
        """The tensor of that internal name.

        Raises ModelFileError where it is missing, damaged or of another shape.
        """
        tensor = self._read(self._entry(name, shape))
        order = self._row_order(name, shape[0])
        if order is not None:
            tensor = tensor[torch.from_numpy(order)]
        return tensor.to(device=self._device, dtype=self._dtype)

    def packed(self, name: str, num_out: int, num_in: int) -> PackedMatrix:
        """The matrix of that internal name in the kernels' layout.

        Raises ModelFileError where it is missing, damaged or of another shape.
        """
        entry = self._entry(name, (num_out, num_in))
        # Read instead of mapped: what is packed is not looked at again.
        raw = np.fromfile(entry.path, np.uint8, count=entry.num_bytes, offset=entry.offset)
        if raw.size != entry.num_bytes:
            _shrunk(entry)
        rows = raw.reshape(num_out, -1)
        order = self._row_order(name, num_out)
        try:
            return pack_blocks(rows if order is None else rows[order], entry.kind, self._memory)
        except NotImplementedError as error:
            raise _unreadable(entry) from error

    def _entry(self, name: str, shape: tuple[int, ...]) -> GGUFTensor:
        entry = self._tensors.get(gguf_name(name))
        if entry is None:
            missing_tensor(self._path, gguf_name(name))
        check_shape(entry.path, entry.name, entry.shape, shape)
        return entry

    def _read(self, entry: GGUFTensor) -> Tensor:
        raw = self._bytes(entry)
        if entry.kind in _PLAIN:
            return torch.from_numpy(raw).view(_PLAIN[entry.kind]).view(entry.shape)
        rows = raw.reshape(*entry.shape[:-1], -1)
        try:
            values = quants.dequantize(rows, entry.kind)
        except NotImplementedError as error:
            raise _unreadable(entry) from error
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))

    def _bytes(self, entry: GGUFTensor) -> npt.NDArray[np.uint8]:
        if entry.path not in self._maps:
            # Copy on write: torch wants memory that it could write to; the file stays as it is.
            self._maps[entry.path] = np.memmap(entry.path, dtype=np.uint8, mode="c")
        raw: npt.NDArray[Any] = self._maps[entry.path][entry.offset :][: entry.num_bytes]
        if raw.size != entry.num_bytes:
            _shrunk(entry)
        return np.asarray(raw)

    def _row_order(self, name: str, num_rows: int) -> npt.NDArray[np.int64] | None:
        """Which row of the file stands at each place; None: as they come.

        llama.cpp stores the query and key rows of some architectures with the two rows of a
        rotated pair side by side; here, as in the paper's code, they are half a head apart."""
        if self._config.architecture not in ("llama", "mistral"):
            return None
        part = name.rsplit(".", 2)[-2]
        heads = {"query": self._config.num_heads, "key": self._config.num_kv_heads}.get(part)
        if heads is None:
            return None
        return np.arange(num_rows).reshape(heads, -1, 2).transpose(0, 2, 1).reshape(-1)


def _unreadable(entry: GGUFTensor) -> ModelFileError:
    return ModelFileError(
        f"{entry.path}: the quantisation {entry.kind.name} of {entry.name!r} cannot be "
        "read. Use a file of another quantisation, such as Q8_0 or Q4_K_M."
    )


def _shrunk(entry: GGUFTensor) -> NoReturn:
    raise ModelFileError(
        f"{entry.path} changed while it was read: it is shorter now. Fetch the file again."
    )
