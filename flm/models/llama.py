"""The Llama family: Llama 1 to 3, SmolLM2, Mistral and, with biases, Qwen2.

Pre-norm layers of grouped-query attention with rotary positions and a gated MLP (arXiv
2302.13971, 2407.21783, 2310.06825, 2407.10671).
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from flm.kvcache.layout import CacheLayout, LayerState
from flm.models.attention import Attend, AttentionView
from flm.models.config import ModelConfig
from flm.models.layers import GatedMLP, Parts, Projection, RMSNorm, Rope, Rotation


class Attention(Protocol):
    """The attention of one layer."""

    def __call__(self, x: Tensor, rotate: Rotation, attend: Attend) -> Tensor:
        """Attend: [T, hidden] to [T, hidden]."""


class LlamaAttention:
    """Queries and keys rotated by their position, heads in groups that share keys and values."""

    def __init__(self, config: ModelConfig, parts: Parts, layer: int) -> None:
        name, hidden, dim = f"layers.{layer}", config.hidden_size, config.head_dim
        query_size, key_size = config.num_heads * dim, config.num_kv_heads * dim
        self.query = parts.linear(f"{name}.query", hidden, query_size, bias=config.qkv_bias)
        self.key = parts.linear(f"{name}.key", hidden, key_size, bias=config.qkv_bias)
        self.value = parts.linear(f"{name}.value", hidden, key_size, bias=config.qkv_bias)
        self.output = parts.linear(f"{name}.output", query_size, hidden, bias=config.output_bias)
        self.head_dim = dim
        self.layer = layer

    def __call__(self, x: Tensor, rotate: Rotation, attend: Attend) -> Tensor:
        """Attend: [T, hidden] to [T, hidden]."""
        q, k, v = (self.heads(product(x)) for product in (self.query, self.key, self.value))
        mixed = attend(rotate(q), rotate(k), v, self.layer)
        return self.output(mixed)

    def heads(self, x: Tensor) -> Tensor:
        """[T, heads * head_dim] to [T, heads, head_dim]."""
        return x.view(x.shape[0], x.shape[1] // self.head_dim, self.head_dim)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: attention, then the MLP, each around a residual."""

    attention_norm: RMSNorm
    attention: Attention
    mlp_norm: RMSNorm
    mlp: GatedMLP

    def __call__(self, x: Tensor, rotate: Rotation, attend: Attend) -> Tensor:
        """[T, hidden] to [T, hidden]."""
        x = x + self.attention(self.attention_norm(x), rotate, attend)
        return x + self.mlp(self.mlp_norm(x))


class Llama:
    """The whole network. A family that differs in its attention overrides ``attention``."""

    def __init__(self, config: ModelConfig, parts: Parts, device: torch.device) -> None:
        self.config = config
        self.layout = cache_layout(config)
        self.exact = parts.exact
        self.embedding = parts.weights.tensor(
            "embedding.weight", config.vocab_size, config.hidden_size
        )
        self.rope = Rope(config, device)
        self.layers = [self.layer(parts, index) for index in range(config.num_layers)]
        self.norm = parts.norm("norm", config.hidden_size, config.rms_norm_eps)
        self.head = self.lm_head(parts)

    def layer(self, parts: Parts, index: int) -> Layer:
        """Layer ``index``, made of its weights."""
        name, size, eps = f"layers.{index}", self.config.hidden_size, self.config.rms_norm_eps
        return Layer(
            attention_norm=parts.norm(f"{name}.attention_norm", size, eps),
            attention=self.attention(parts, index),
            mlp_norm=parts.norm(f"{name}.mlp_norm", size, eps),
            mlp=parts.mlp(name, self.config),
        )

    def attention(self, parts: Parts, index: int) -> Attention:
        """The attention of layer ``index``."""
        return LlamaAttention(self.config, parts, index)

    def lm_head(self, parts: Parts) -> Projection:
        """The product that gives the logits; a tied one shares the embedding's memory."""
        if self.config.tie_embeddings:
            return parts.product(self.embedding)
        return parts.linear("head", self.config.hidden_size, self.config.vocab_size)

    def hidden(self, token_ids: Tensor, positions: Tensor, kv: AttentionView) -> Tensor:
        """Run the tokens, [T] at ``positions`` [T], into the cache.

        Returns the last layer's output with the final norm applied, [T, hidden_size].
        """
        x = functional.embedding(token_ids, self.embedding)
        rotate = self.rope.at(positions)
        attend = Attend(kv, x.device, exact=self.exact)
        for layer in self.layers:
            x = layer(x, rotate, attend)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of the next token, [R, hidden_size] to [R, vocab_size], float32."""
        return self.head(hidden).float()


def cache_layout(config: ModelConfig) -> CacheLayout:
    """Keys and values of every position, in every layer."""
    state = LayerState(config.num_kv_heads, config.head_dim)
    return CacheLayout((state,) * config.num_layers)
