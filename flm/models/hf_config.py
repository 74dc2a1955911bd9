"""``config.json`` of a Hugging Face folder, as transformers 4 and 5 write it, to ModelConfig."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flm.errors import ModelFileError
from flm.models.config import (
    Architecture,
    Fields,
    LinearScaling,
    Llama3Scaling,
    ModelConfig,
    RopeScaling,
    YarnScaling,
    capped_context,
    known_architecture,
    yarn_attention_factor,
)


@dataclass(frozen=True, slots=True)
class _Defaults:
    """What transformers assumes where config.json leaves a key out."""

    max_context_len: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    sliding_window: int | None = None


_DEFAULTS: Final[Mapping[Architecture, _Defaults]] = {
    "llama": _Defaults(max_context_len=2048),
    "mistral": _Defaults(max_context_len=131072, num_kv_heads=8, sliding_window=4096),
    "qwen2": _Defaults(max_context_len=32768, num_kv_heads=32, sliding_window=4096),
    "qwen3": _Defaults(max_context_len=32768, num_kv_heads=32, head_dim=128, sliding_window=4096),
}


def read_hf_config(values: Mapping[str, Any], path: Path) -> ModelConfig:
    """The configuration in the parsed config.json at ``path``.

    Raises ModelFileError for an unsupported architecture, quantisation, activation or rope
    scaling, and for missing or contradictory values.
    """
    fields = Fields(path, values)
    architecture = _architecture(fields)
    _refuse_quantisation(fields)
    defaults = _DEFAULTS[architecture]
    num_heads = fields.integer("num_attention_heads")
    rope = _rope_fields(fields)
    stated_len = fields.integer("max_position_embeddings", defaults.max_context_len)
    scaling = _rope_scaling(rope, stated_len)
    context_len, window = capped_context(
        _context_len(stated_len, scaling), _window(fields, architecture)
    )
    attention_bias = fields.flag("attention_bias", False)
    return ModelConfig(
        architecture=architecture,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=fields.integer("hidden_size"),
        intermediate_size=fields.integer("intermediate_size"),
        num_layers=fields.integer("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=_or_default(fields, "num_key_value_heads", defaults.num_kv_heads, num_heads),
        head_dim=_or_default(fields, "head_dim", defaults.head_dim, _split(fields, num_heads)),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope_theta=rope.number("rope_theta", 10000.0),
        rope_scaling=scaling,
        max_context_len=context_len,
        tie_embeddings=fields.flag("tie_word_embeddings", False),
        qkv_bias=architecture == "qwen2" or attention_bias,
        output_bias=architecture != "qwen2" and attention_bias,
        mlp_bias=architecture == "llama" and fields.flag("mlp_bias", False),
        qk_norm=architecture == "qwen3",
        sliding_window=window,
        activation=_activation(fields),
    )


def _architecture(fields: Fields) -> Architecture:
    architecture = known_architecture(fields.text("model_type"), fields.path)
    heads = fields.values.get("architectures")
    if isinstance(heads, list) and heads and not str(heads[0]).endswith("ForCausalLM"):
        raise ModelFileError(
            f"{fields.path}: {heads[0]} is not a text generation model. "
            "Choose one whose architecture ends in ForCausalLM."
        )
    return architecture


def _refuse_quantisation(fields: Fields) -> None:
    section = fields.section("quantization_config")
    if section:
        method = section.get("quant_method", "unknown")
        raise ModelFileError(
            f"{fields.path}: weights quantised by {method!r} cannot be read. "
            "Use the unquantised model, or a GGUF file of it."
        )


def _activation(fields: Fields) -> Any:
    name = fields.text("hidden_act", "silu")
    if name not in ("silu", "swish"):
        raise ModelFileError(
            f"{fields.path}: the activation {name!r} is not supported, only 'silu'. "
            "Choose another model."
        )
    return "silu"


def _or_default(fields: Fields, key: str, missing: int | None, null: int) -> int:
    """transformers tells a missing key (its class default) from a null one (derived)."""
    default = null if key in fields.values or missing is None else missing
    return fields.integer(key, default)


def _split(fields: Fields, num_heads: int) -> int:
    return fields.integer("hidden_size") // max(num_heads, 1)


def _window(fields: Fields, architecture: Architecture) -> int | None:
    default = _DEFAULTS[architecture].sliding_window
    window = fields.optional_integer("sliding_window")
    if "sliding_window" not in fields.values:
        window = default
    if architecture == "llama":
        return None
    if architecture == "mistral":
        return window
    return window if _has_windowed_layers(fields) else None


def _has_windowed_layers(fields: Fields) -> bool:
    layer_types = fields.values.get("layer_types")
    if isinstance(layer_types, list):
        return "sliding_attention" in layer_types
    first_windowed = fields.integer("max_window_layers", 28)
    return fields.flag("use_sliding_window", False) and (
        first_windowed < fields.integer("num_hidden_layers")
    )


# --- rope --------------------------------------------------------------------------------------


def _rope_fields(fields: Fields) -> Fields:
    """``rope_parameters``, or the older ``rope_scaling`` and ``rope_theta``, as one object."""
    values = dict(fields.section("rope_parameters") or fields.section("rope_scaling"))
    if any(isinstance(value, Mapping) for value in values.values()):
        raise ModelFileError(
            f"{fields.path}: rope parameters that differ by layer are not supported. "
            "Choose another model."
        )
    for key in ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings"):
        if fields.values.get(key) is not None:
            values.setdefault(key, fields.values[key])
    rope = Fields(fields.path, values)
    if rope.number("partial_rotary_factor", 1.0) != 1.0:
        raise ModelFileError(
            f"{fields.path}: rotating a part of each head (partial_rotary_factor) is not "
            "supported. Choose another model."
        )
    return rope


def _rope_scaling(rope: Fields, stated_len: int) -> RopeScaling | None:
    kind = rope.text("rope_type", rope.text("type", "default"))
    match kind:
        case "default":
            return None
        case "linear":
            return LinearScaling(rope.positive("factor"))
        case "llama3":
            return Llama3Scaling(
                factor=rope.positive("factor"),
                low_freq_factor=rope.positive("low_freq_factor"),
                high_freq_factor=rope.positive("high_freq_factor"),
                original_max_len=rope.integer("original_max_position_embeddings", stated_len),
            )
        case "yarn":
            return _yarn(rope, stated_len)
    raise ModelFileError(
        f"{rope.path}: the rope scaling {kind!r} is not supported. "
        "Supported are: linear, llama3, yarn. Choose another model."
    )


def _yarn(rope: Fields, stated_len: int) -> YarnScaling:
    original_len = rope.integer("original_max_position_embeddings", stated_len)
    factor = rope.positive("factor", stated_len / max(original_len, 1))
    return YarnScaling(
        factor=factor,
        original_max_len=original_len,
        attention_factor=rope.positive("attention_factor", _mscale_ratio(rope, factor)),
        beta_fast=rope.positive("beta_fast", 32.0),
        beta_slow=rope.positive("beta_slow", 1.0),
        truncate=rope.flag("truncate", True),
    )


def _mscale_ratio(rope: Fields, factor: float) -> float:
    """DeepSeek's variant gives two multipliers of the logarithm and takes their ratio."""
    above = rope.number("mscale", 0.0)
    below = rope.number("mscale_all_dim", 0.0)
    default = yarn_attention_factor(factor)
    if above == 0.0 or below == 0.0:
        return default
    return (above * (default - 1.0) + 1.0) / (below * (default - 1.0) + 1.0)


def _context_len(stated_len: int, scaling: RopeScaling | None) -> int:
    """A YaRN section may be added to a config that still states the trained length."""
    if isinstance(scaling, YarnScaling):
        return max(stated_len, int(scaling.original_max_len * scaling.factor))
    return stated_len
