"""Qwen3: Llama with a norm over each query and key head before the rotation (arXiv 2505.09388)."""

from torch import Tensor

from flm.models.attention import Attend
from flm.models.config import ModelConfig
from flm.models.layers import Parts, Rotation
from flm.models.llama import Attention, Llama, LlamaAttention


class Qwen3Attention(LlamaAttention):
    """Attention whose queries and keys are normed head by head."""

    def __init__(self, config: ModelConfig, parts: Parts, layer: int) -> None:
        super().__init__(config, parts, layer)
        name, dim, eps = f"layers.{layer}", config.head_dim, config.rms_norm_eps
        self.query_norm = parts.norm(f"{name}.query_norm", dim, eps)
        self.key_norm = parts.norm(f"{name}.key_norm", dim, eps)

    def __call__(self, x: Tensor, rotate: Rotation, attend: Attend) -> Tensor:
        """Attend: [T, hidden] to [T, hidden]."""
        q = self.query_norm(self.heads(self.query(x)))
        k = self.key_norm(self.heads(self.key(x)))
        v = self.heads(self.value(x))
        mixed = attend(rotate(q), rotate(k), v, self.layer)
        return self.output(mixed)


class Qwen3(Llama):
    """The whole network."""

    def attention(self, parts: Parts, index: int) -> Attention:
        """The attention of layer ``index``."""
        return Qwen3Attention(self.config, parts, index)
