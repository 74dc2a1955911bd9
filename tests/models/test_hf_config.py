import json
from pathlib import Path
from typing import Any

import pytest

from flm.errors import ModelFileError
from flm.models.config import (
    LinearScaling,
    Llama3Scaling,
    ModelConfig,
    YarnScaling,
    yarn_attention_factor,
)
from flm.models.hf_config import read_hf_config
from tests.support.tiny import (
    LINEAR_SCALING,
    LLAMA3_SCALING,
    YARN_SCALING,
    Architecture,
    TinySpec,
    tiny_config,
)

PATH = Path("folder/config.json")


def read(architecture: Architecture = "llama", **changes: Any) -> ModelConfig:
    """The tiny configuration with changes; ``...`` takes a key away."""
    values = tiny_config(TinySpec(architecture)) | changes
    kept = {key: value for key, value in values.items() if value is not ...}
    return read_hf_config(json.loads(json.dumps(kept)), PATH)


def test_the_sizes() -> None:
    config = read()
    assert (config.vocab_size, config.hidden_size, config.intermediate_size) == (512, 64, 128)
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (2, 4, 2)
    assert (config.head_dim, config.max_context_len) == (16, 2048)
    assert (config.rms_norm_eps, config.rope_theta) == (1e-5, 10000.0)
    assert config.tie_embeddings
    assert config.rope_scaling is None


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [("llama", (False, False, False)), ("qwen2", (True, False, False)), ("qwen3", (False,) * 3)],
)
def test_biases_by_family(architecture: Architecture, expected: tuple[bool, ...]) -> None:
    config = read(architecture)
    assert (config.qkv_bias, config.output_bias, config.mlp_bias) == expected
    assert config.qk_norm == (architecture == "qwen3")


def test_biases_by_wish() -> None:
    config = read(attention_bias=True, mlp_bias=True)
    assert config.qkv_bias
    assert config.output_bias
    assert config.mlp_bias


# --- what a file may leave out ---


def test_missing_keys_are_what_transformers_assumes() -> None:
    from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

    classes: dict[Architecture, Any] = {
        "llama": LlamaConfig,
        "mistral": MistralConfig,
        "qwen2": Qwen2Config,
        "qwen3": Qwen3Config,
    }
    left_out = dict.fromkeys(
        ("num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps"), ...
    )
    for architecture, config_class in classes.items():
        ours = read(
            architecture,
            num_attention_heads=64,
            hidden_size=4096,
            sliding_window=None,
            tie_word_embeddings=...,
            rope_parameters=...,
            **left_out,
        )
        theirs = config_class(num_attention_heads=64, hidden_size=4096)
        assert ours.num_kv_heads == theirs.num_key_value_heads
        assert ours.max_context_len == theirs.max_position_embeddings
        assert ours.rms_norm_eps == theirs.rms_norm_eps
        assert ours.tie_embeddings == theirs.tie_word_embeddings
        assert ours.rope_theta == theirs.rope_parameters["rope_theta"]
        assert ours.head_dim == (getattr(theirs, "head_dim", None) or 4096 // 64)


def test_null_heads_are_derived() -> None:
    config = read("mistral", num_key_value_heads=None, head_dim=None)
    assert (config.num_kv_heads, config.head_dim) == (4, 16)


# --- rope ---


@pytest.mark.parametrize("style", ["rope_parameters", "rope_scaling", "type"])
def test_every_scaling_in_every_style(style: str) -> None:
    def scaled(section: dict[str, Any]) -> ModelConfig:
        if style == "rope_parameters":
            return read(rope_parameters={"rope_theta": 5000.0} | section)
        section = dict(section)
        if style == "type":
            section["type"] = section.pop("rope_type")
        return read(rope_parameters=..., rope_theta=5000, rope_scaling=section)

    assert scaled(LINEAR_SCALING).rope_scaling == LinearScaling(4.0)
    assert scaled(LLAMA3_SCALING).rope_scaling == Llama3Scaling(8.0, 1.0, 4.0, 256)
    wanted = YarnScaling(4.0, 512, yarn_attention_factor(4.0))
    assert scaled(YARN_SCALING).rope_scaling == wanted
    assert scaled(YARN_SCALING).rope_theta == 5000.0
    assert scaled({"rope_type": "default"}).rope_scaling is None


def test_yarn_extends_the_stated_context() -> None:
    section = YARN_SCALING | {"factor": 8.0}
    assert read(rope_parameters=section).max_context_len == 4096
    assert read(rope_parameters=YARN_SCALING | {"factor": 2.0}).max_context_len == 2048


def test_yarn_without_an_original_length_takes_the_stated_one() -> None:
    config = read(rope_parameters={"rope_type": "yarn", "factor": 2.0})
    assert isinstance(config.rope_scaling, YarnScaling)
    assert config.rope_scaling.original_max_len == 2048
    assert config.max_context_len == 4096


@pytest.mark.parametrize("kind", ["dynamic", "longrope", "su", "mrope"])
def test_an_unsupported_scaling_is_named(kind: str) -> None:
    with pytest.raises(ModelFileError, match=f"'{kind}' is not supported.*linear, llama3, yarn"):
        read(rope_parameters={"rope_type": kind, "factor": 2.0})


# --- windows ---


@pytest.mark.parametrize(
    ("architecture", "changes", "expected"),
    [
        ("mistral", {"sliding_window": 512}, (512, 512)),
        ("mistral", {"sliding_window": 4096}, (2048, None)),
        ("mistral", {"sliding_window": None}, (2048, None)),
        ("mistral", {"sliding_window": ..., "max_position_embeddings": 9000}, (4096, 4096)),
        ("llama", {"sliding_window": 512}, (2048, None)),
        ("qwen2", {"sliding_window": 512}, (2048, None)),
        ("qwen2", {"sliding_window": 512, "use_sliding_window": True}, (2048, None)),
        (
            "qwen2",
            {"sliding_window": 512, "use_sliding_window": True, "max_window_layers": 1},
            (512, 512),
        ),
        (
            "qwen3",
            {"sliding_window": 512, "layer_types": ["full_attention", "sliding_attention"]},
            (512, 512),
        ),
        ("qwen3", {"sliding_window": 512, "layer_types": ["full_attention"] * 2}, (2048, None)),
    ],
)
def test_a_window_caps_the_context(
    architecture: Architecture, changes: dict[str, Any], expected: tuple[int, int | None]
) -> None:
    config = read(architecture, **changes)
    assert (config.max_context_len, config.sliding_window) == expected


# --- what cannot be run ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt_bigcode"}, "'gpt_bigcode' is not supported.*llama, mistral, qwen2"),
        ({"model_type": ...}, "'model_type' is missing"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "not a text generation model"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised by 'gptq'"),
        ({"hidden_act": "gelu"}, "'gelu' is not supported"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "differ by layer"),
        ({"vocab_size": ...}, "'vocab_size' is missing"),
        ({"hidden_size": "64"}, "'hidden_size' must be an integer, not 64"),
        ({"num_hidden_layers": True}, "'num_hidden_layers' must be an integer"),
        ({"num_hidden_layers": 0}, "num_layers is 0"),
        ({"num_key_value_heads": 3}, "4 attention heads cannot share 3"),
        ({"head_dim": 15}, "an odd number"),
        ({"max_position_embeddings": -1}, "max_context_len is -1"),
        ({"rms_norm_eps": float("inf")}, "'rms_norm_eps' must be a finite number"),
        ({"rope_parameters": []}, "'rope_parameters' must be an object"),
        ({"rope_parameters": YARN_SCALING | {"factor": -1.0}}, "number above zero"),
        (
            {"rope_parameters": YARN_SCALING | {"original_max_position_embeddings": -5}},
            "context before scaling",
        ),
        ({"rope_parameters": LLAMA3_SCALING | {"low_freq_factor": 4.0}}, "is not below"),
        ({"vocab_size": 1 << 40}, "which no model has"),
    ],
)
def test_a_wrong_configuration_says_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        read(**changes)
