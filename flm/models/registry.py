"""From an opened model to a network that runs."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import torch
from torch import Tensor

from flm.kernels.library import Kernels
from flm.kernels.weight_only import WeightFormat
from flm.kvcache.layout import CacheLayout
from flm.log import logger
from flm.models.attention import AttentionView
from flm.models.config import Architecture, ModelConfig
from flm.models.files import ModelFiles
from flm.models.fused import FusedModel
from flm.models.layers import Parts
from flm.models.llama import Llama
from flm.models.qwen3 import Qwen3
from flm.models.weights.gguf import GGUFWeights
from flm.models.weights.safetensors import SafetensorsWeights


class CausalLM(Protocol):
    """A decoder-only language model, its cache an argument."""

    config: ModelConfig
    layout: CacheLayout

    def hidden(self, token_ids: Tensor, positions: Tensor, kv: AttentionView) -> Tensor:
        """Run the tokens, [T] at ``positions`` [T], into the cache.

        Returns the last layer's output with the final norm applied, [T, hidden_size].
        """

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of the next token, [R, hidden_size] to [R, vocab_size], float32."""


NETWORKS: Final[Mapping[Architecture, Callable[[ModelConfig, Parts, torch.device], CausalLM]]] = {
    "llama": Llama,
    "mistral": Llama,
    "qwen2": Llama,
    "qwen3": Qwen3,
}
"""The network of each architecture."""


def load_model(
    files: ModelFiles,
    *,
    dtype: torch.dtype,
    device: torch.device,
    exact: bool,
    kernels: Kernels | None = None,
    weight_format: WeightFormat | None = None,
) -> CausalLM:
    """Read the weights and build the network.

    ``exact`` makes a row's result independent of the other rows and of how its sequence was cut
    (bit for bit in float32 on the CPU), which costs speed, less of it with the native
    ``kernels``. With a ``weight_format`` the layers' matrices are rounded to it. Raises
    ModelFileError where a tensor is missing, damaged or of a wrong shape.
    """
    _warn_of_window(files)
    config = files.config
    parts = Parts(_weights(files, dtype, device), exact, kernels, weight_format)
    return NETWORKS[config.architecture](config, parts, device)


def load_fused(files: ModelFiles, kernels: Kernels) -> FusedModel:
    """Read the weights into the layout of the native kernels and build the network on them.

    Only where ``can_fuse(files.config)``. Raises ModelFileError where a tensor is missing,
    damaged or of a wrong shape.
    """
    _warn_of_window(files)
    weights = _weights(files, torch.float32, torch.device("cpu"))
    return FusedModel(files.config, weights, kernels)


def _warn_of_window(files: ModelFiles) -> None:
    window = files.config.sliding_window
    if window is not None:
        logger.warning(
            "%s attends within a window of %d tokens; the context is limited to it.",
            files.labels.name,
            window,
        )


def _weights(
    files: ModelFiles, dtype: torch.dtype, device: torch.device
) -> GGUFWeights | SafetensorsWeights:
    if files.format == "gguf":
        return GGUFWeights(files.path, files.gguf_tensors, files.config, dtype, device)
    return SafetensorsWeights(files.path, files.safetensors_tensors, dtype, device)
