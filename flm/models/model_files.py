"""What an opened model is, as values, whatever format it came in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from flm.models.config import ModelConfig
from flm.models.gguf_header import GGUFTensor
from flm.models.safetensors_header import SafetensorsTensor
from flm.types import TokenizerData

Format = Literal["gguf", "safetensors"]


@dataclass(frozen=True, slots=True)
class ModelLabels:
    """What is shown of a model. ``parameter_size`` is like ``135M``, ``quantization`` like
    ``Q4_1`` or ``BF16``; ``num_bytes`` counts the weight files."""

    name: str
    family: str
    parameter_size: str
    num_parameters: int
    quantization: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """An opened model. ``sampling`` holds the default values its authors give, under the names
    of SamplingParams; the tensors are keyed by the file's
    own names, those of the other format are empty."""

    path: Path
    config: ModelConfig
    tokenizer: TokenizerData
    sampling: Mapping[str, float | int]
    labels: ModelLabels
    gguf_tensors: Mapping[str, GGUFTensor] = field(default_factory=dict)
    safetensors_tensors: Mapping[str, SafetensorsTensor] = field(default_factory=dict)

    @property
    def format(self) -> Format:
        """The kind of file the weights are in."""
        return "gguf" if self.gguf_tensors else "safetensors"


def size_label(num_parameters: int) -> str:
    """A parameter count the way models are named: 135M, 1.7B, 70B."""
    if num_parameters >= 10_000_000_000:
        return f"{num_parameters / 1e9:.0f}B"
    if num_parameters >= 950_000_000:
        return f"{num_parameters / 1e9:.1f}B"
    if num_parameters >= 1_000_000:
        return f"{num_parameters / 1e6:.0f}M"
    return f"{num_parameters / 1e6:.1f}M"


def sampling_defaults(found: Mapping[str, object], vocab_size: int) -> dict[str, float | int]:
    """The usable values among ``found`` (keys as in SamplingParams).

    A value outside its range (docs/sampling.md) is left out. A top_k of zero or below means "no
    limit" in both formats and becomes the size of the vocabulary.
    """
    defaults: dict[str, float | int] = {}
    for key, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if key == "top_k":
            defaults[key] = int(value) if 0 < value < vocab_size else vocab_size
        elif _in_range(key, value):
            defaults[key] = float(value)
    return defaults


def _in_range(key: str, value: float) -> bool:
    match key:
        case "temperature":
            return 0 <= value < 1e9
        case "top_p" | "min_p":
            return 0 <= value <= 1
        case "repetition_penalty":
            return 0 < value < 1e9
    return False
