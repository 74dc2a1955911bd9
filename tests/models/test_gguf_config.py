from pathlib import Path
from typing import Any

import pytest

from flm.errors import ModelFileError
from flm.models.config import FactorScaling, LinearScaling, ModelConfig, YarnScaling
from flm.models.gguf_config import GGUFShape, read_gguf_config

PATH = Path("model.gguf")
METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 2048,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 128,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}


def read(
    changes: dict[str, Any] | None = None,
    tensors: tuple[str, ...] = (),
    factors: tuple[float, ...] | None = None,
) -> ModelConfig:
    """The metadata with changes; ``...`` takes a key away."""
    values = METADATA | ({} if changes is None else changes)
    kept = {key: value for key, value in values.items() if value is not ...}
    return read_gguf_config(kept, GGUFShape(512, frozenset(tensors), factors), PATH)


def test_the_sizes() -> None:
    assert read() == ModelConfig(
        architecture="llama",
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        rope_scaling=None,
        max_context_len=2048,
        tie_embeddings=True,
    )


def test_the_tensors_decide_what_the_metadata_leaves_open() -> None:
    config = read(
        tensors=(
            "output.weight",
            "blk.0.attn_q.bias",
            "blk.0.attn_output.bias",
            "blk.0.ffn_down.bias",
        )
    )
    assert not config.tie_embeddings
    assert config.qkv_bias
    assert config.output_bias
    assert config.mlp_bias


def test_counts_written_once_per_layer() -> None:
    assert read({"llama.attention.head_count_kv": (2, 2)}).num_kv_heads == 2
    with pytest.raises(ModelFileError, match=r"layers that differ in 'attention\.head_count_kv'"):
        read({"llama.attention.head_count_kv": (2, 4)})


def test_missing_kv_heads_are_the_heads() -> None:
    assert read({"llama.attention.head_count_kv": ...}).num_kv_heads == 4


def test_wide_heads() -> None:
    wide = {"llama.attention.key_length": 32, "llama.attention.value_length": 32}
    assert read(wide).head_dim == 32
    with pytest.raises(ModelFileError, match="32 key, 16 value and 32 rotated"):
        read({"llama.attention.key_length": 32})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"llama.rope.scaling.type": "none"}, None),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}, 4.0),
        ({"llama.rope.scaling.factor": 4.0}, 4.0),
        ({"llama.rope.scale_linear": 4.0}, 4.0),
    ],
)
def test_linear_scaling(changes: dict[str, Any], expected: float | None) -> None:
    wanted = None if expected is None else LinearScaling(expected)
    assert read(changes).rope_scaling == wanted


def test_yarn_scaling() -> None:
    yarn = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 1.0}
    assert read(yarn).rope_scaling == YarnScaling(1.0, 2048, 1.0)
    options = {
        "llama.rope.scaling.original_context_length": 512,
        "llama.rope.scaling.attn_factor": 2.0,
        "llama.rope.scaling.yarn_attn_factor": 1.5,
        "llama.rope.scaling.yarn_beta_fast": 16.0,
        "llama.rope.scaling.yarn_beta_slow": 2.0,
    }
    assert read(yarn | options).rope_scaling == YarnScaling(1.0, 512, 3.0, 16.0, 2.0)


def test_factors() -> None:
    factors = tuple(float(i + 1) for i in range(8))
    assert read(factors=factors).rope_scaling == FactorScaling(factors)
    for wrong, message in (
        (factors[:7], "7 rope factors"),
        ((0.0, *factors[1:]), "not all finite"),
        ((float("nan"), *factors[1:]), "not all finite"),
    ):
        with pytest.raises(ModelFileError, match=message):
            read(factors=wrong)
    with pytest.raises(ModelFileError, match="'linear' is not supported"):
        read({"llama.rope.scaling.factor": 4.0}, factors=factors)


def test_a_window_caps_the_context() -> None:
    config = read({"llama.attention.sliding_window": 1024})
    assert (config.max_context_len, config.sliding_window) == (1024, 1024)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general.architecture": "gpt2"}, "'gpt2' is not supported. Supported are: llama, "),
        ({"general.architecture": ...}, "'general.architecture' is missing"),
        ({"llama.expert_count": 8}, "mixture-of-experts"),
        ({"llama.context_length": ...}, "'context_length' is missing"),
        ({"llama.block_count": "two"}, "'block_count' must be an integer, not two"),
        ({"llama.rope.scaling.type": "longrope"}, "'longrope' is not supported"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "a finite number"),
        ({"llama.attention.head_count": 0}, "num_heads is 0"),
    ],
)
def test_a_wrong_configuration_says_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        read(changes)
