"""Weights from GGUF files, dequantised."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from gguf import quants
from gguf.constants import GGMLQuantizationType
from torch import Tensor

from flm.errors import ModelFileError
from flm.models.config import ModelConfig
from flm.models.gguf_header import GGUFTensor
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
        self._maps: dict[Path, npt.NDArray[np.uint8]] = {}

    def tensor(self, name: str, *shape: int) -> Tensor:
        """The tensor of that internal name.

        Raises ModelFileError where it is missing, damaged or of another shape.
        """
        entry = self._tensors.get(gguf_name(name))
        if entry is None:
            missing_tensor(self._path, gguf_name(name))
        check_shape(entry.path, entry.name, entry.shape, shape)
        tensor = self._read(entry)
        if self._config.architecture in ("llama", "mistral"):
            tensor = self._unpermuted(name, tensor)
        return tensor.to(device=self._device, dtype=self._dtype)

    def _read(self, entry: GGUFTensor) -> Tensor:
        raw = self._bytes(entry)
        if entry.kind in _PLAIN:
            return torch.from_numpy(raw).view(_PLAIN[entry.kind]).view(entry.shape)
        rows = raw.reshape(*entry.shape[:-1], -1)
        try:
            values = quants.dequantize(rows, entry.kind)
        except NotImplementedError as error:
            raise ModelFileError(
                f"{entry.path}: the quantisation {entry.kind.name} of {entry.name!r} cannot be "
                "read. Use a file of another quantisation, such as Q8_0 or Q4_K_M."
            ) from error
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))

    def _bytes(self, entry: GGUFTensor) -> npt.NDArray[np.uint8]:
        if entry.path not in self._maps:
            # Copy on write: torch wants memory that it could write to; the file stays as it is.
            self._maps[entry.path] = np.memmap(entry.path, dtype=np.uint8, mode="c")
        raw: npt.NDArray[Any] = self._maps[entry.path][entry.offset :][: entry.num_bytes]
        if raw.size != entry.num_bytes:
            raise ModelFileError(
                f"{entry.path} changed while it was read: it is shorter now. Fetch the file again."
            )
        return np.asarray(raw)

    def _unpermuted(self, name: str, tensor: Tensor) -> Tensor:
        """llama.cpp stores the query and key rows of this architecture with the two rows of a
        rotated pair side by side; here, as in the paper's code, they are half a head apart."""
        part = name.rsplit(".", 2)[1]
        heads = {"query": self._config.num_heads, "key": self._config.num_kv_heads}.get(part)
        if heads is None:
            return tensor
        shape = (heads, tensor.shape[0] // heads // 2, 2, *tensor.shape[1:])
        return tensor.view(shape).transpose(1, 2).reshape(tensor.shape)
