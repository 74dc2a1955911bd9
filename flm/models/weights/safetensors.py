"""Weights from the safetensors files of a Hugging Face folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from flm.errors import ModelFileError
from flm.kernels.packed import Memory, PackedMatrix, quantised
from flm.models.safetensors_header import SafetensorsTensor
from flm.models.weights.names import hf_name
from flm.models.weights.shape import check_shape, missing_tensor

_DTYPES: Final = frozenset({"F64", "F32", "F16", "BF16"})


class SafetensorsWeights:
    """Reads tensors one by one; those already in the wanted dtype share the file's memory."""

    def __init__(
        self,
        folder: Path,
        tensors: Mapping[str, SafetensorsTensor],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._folder = folder
        self._tensors = tensors
        self._dtype = dtype
        self._device = device
        self._memory = Memory()
        self._open: dict[Path, Any] = {}

    def tensor(self, name: str, *shape: int) -> Tensor:
        """The tensor of that internal name.

        Raises ModelFileError where it is missing, damaged or of another shape.
        """
        entry = self._tensors.get(hf_name(name))
        if entry is None:
            missing_tensor(self._folder, hf_name(name))
        check_shape(entry.path, entry.name, entry.shape, shape)
        if entry.dtype not in _DTYPES:
            raise ModelFileError(
                f"{entry.path}: weights of type {entry.dtype} cannot be read, only "
                f"{', '.join(sorted(_DTYPES))}. Use the unquantised model."
            )
        return self._read(entry).to(device=self._device, dtype=self._dtype)

    def packed(self, name: str, num_out: int, num_in: int) -> PackedMatrix:
        """The matrix of that internal name, rounded to 8 bits.

        Raises ModelFileError where it is missing, damaged or of another shape.
        """
        return quantised(self.tensor(name, num_out, num_in).float().numpy(), self._memory)

    def _read(self, entry: SafetensorsTensor) -> Tensor:
        try:
            if entry.path not in self._open:
                self._open[entry.path] = safe_open(entry.path, framework="pt")
            tensor: Tensor = self._open[entry.path].get_tensor(entry.name)
        except (SafetensorError, OSError) as error:
            raise ModelFileError(
                f"{entry.path} is damaged: {error}. Fetch the model again."
            ) from error
        return tensor
