"""GGUF metadata to ModelConfig. Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flm.errors import ModelFileError
from flm.models.config import (
    Architecture,
    FactorScaling,
    Fields,
    LinearScaling,
    ModelConfig,
    RopeScaling,
    YarnScaling,
    capped_context,
    known_architecture,
    yarn_attention_factor,
)


@dataclass(frozen=True, slots=True)
class GGUFShape:
    """What the tensor table, not the metadata, says about the network."""

    vocab_size: int
    tensor_names: frozenset[str]
    rope_factors: tuple[float, ...] | None


def read_gguf_config(values: Mapping[str, Any], shape: GGUFShape, path: Path) -> ModelConfig:
    """The configuration in the metadata of the GGUF file at ``path``.

    Raises ModelFileError for an unsupported architecture or rope scaling, and for missing or
    contradictory values.
    """
    architecture = _architecture(Fields(path, values))
    fields = Fields(path, _own_keys(values, architecture))
    _refuse_variants(fields)
    num_heads = _same_everywhere(fields, "attention.head_count")
    head_dim = _head_dim(fields, num_heads)
    context_len, window = capped_context(
        fields.integer("context_length"), fields.optional_integer("attention.sliding_window")
    )
    return ModelConfig(
        architecture=architecture,
        vocab_size=shape.vocab_size,
        hidden_size=fields.integer("embedding_length"),
        intermediate_size=_same_everywhere(fields, "feed_forward_length"),
        num_layers=fields.integer("block_count"),
        num_heads=num_heads,
        num_kv_heads=_same_everywhere(fields, "attention.head_count_kv", num_heads),
        head_dim=head_dim,
        rms_norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
        rope_theta=fields.number("rope.freq_base", 10000.0),
        rope_scaling=_rope_scaling(fields, shape.rope_factors),
        max_context_len=context_len,
        tie_embeddings="output.weight" not in shape.tensor_names,
        qkv_bias="blk.0.attn_q.bias" in shape.tensor_names,
        output_bias="blk.0.attn_output.bias" in shape.tensor_names,
        mlp_bias="blk.0.ffn_down.bias" in shape.tensor_names,
        qk_norm=architecture == "qwen3",
        sliding_window=window,
    )


def _architecture(fields: Fields) -> Architecture:
    return known_architecture(fields.text("general.architecture"), fields.path)


def _own_keys(values: Mapping[str, Any], architecture: Architecture) -> dict[str, Any]:
    prefix = f"{architecture}."
    return {key.removeprefix(prefix): values[key] for key in values if key.startswith(prefix)}


def _refuse_variants(fields: Fields) -> None:
    if fields.integer("expert_count", 0) > 0:
        raise ModelFileError(
            f"{fields.path}: mixture-of-experts models are not supported. Choose a dense model."
        )


def _same_everywhere(fields: Fields, key: str, default: int | None = None) -> int:
    """A count that some files write once per layer."""
    value = fields.values.get(key)
    if not isinstance(value, tuple):
        return fields.integer(key, default)
    if len(set(value)) != 1:
        raise ModelFileError(
            f"{fields.path}: layers that differ in {key!r} are not supported. Choose another model."
        )
    return Fields(fields.path, {key: value[0]}).integer(key)


def _head_dim(fields: Fields, num_heads: int) -> int:
    split = fields.integer("embedding_length") // max(num_heads, 1)
    head_dim = fields.integer("attention.key_length", split)
    value_dim = fields.integer("attention.value_length", split)
    rotated = fields.integer("rope.dimension_count", head_dim)
    if not head_dim == value_dim == rotated:
        raise ModelFileError(
            f"{fields.path}: heads of {head_dim} key, {value_dim} value and {rotated} rotated "
            "dimensions are not supported, they must be equal. Choose another model."
        )
    return head_dim


def _rope_scaling(fields: Fields, factors: tuple[float, ...] | None) -> RopeScaling | None:
    kind = fields.text("rope.scaling.type", _implied_kind(fields))
    if factors is not None and kind == "none":
        return FactorScaling(factors)
    match kind if factors is None else f"{kind} with rope_freqs":
        case "none":
            return None
        case "linear":
            legacy = fields.number("rope.scale_linear", 1.0)
            return LinearScaling(fields.positive("rope.scaling.factor", legacy))
        case "yarn":
            return _yarn(fields)
    raise ModelFileError(
        f"{fields.path}: the rope scaling {kind!r} is not supported. "
        "Supported are: linear, yarn, rope_freqs (llama3). Choose another model."
    )


def _implied_kind(fields: Fields) -> str:
    """Old files give a factor without naming the kind, which then is linear."""
    keys = ("rope.scaling.factor", "rope.scale_linear")
    return "linear" if any(key in fields.values for key in keys) else "none"


def _yarn(fields: Fields) -> YarnScaling:
    factor = fields.positive("rope.scaling.factor")
    extra = fields.positive("rope.scaling.attn_factor", 1.0)
    extra *= fields.positive("rope.scaling.yarn_attn_factor", 1.0)
    return YarnScaling(
        factor=factor,
        original_max_len=fields.integer(
            "rope.scaling.original_context_length", fields.integer("context_length")
        ),
        attention_factor=extra * yarn_attention_factor(factor),
        beta_fast=fields.positive("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=fields.positive("rope.scaling.yarn_beta_slow", 1.0),
    )
