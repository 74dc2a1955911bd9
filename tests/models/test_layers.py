import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from flm.models.config import (
    FactorScaling,
    LinearScaling,
    Llama3Scaling,
    ModelConfig,
    RopeScaling,
    YarnScaling,
)
from flm.models.layers import RMSNorm, Rope, inverse_frequencies

CPU = torch.device("cpu")
CONFIG = ModelConfig(
    architecture="llama",
    vocab_size=512,
    hidden_size=64,
    intermediate_size=128,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    rope_scaling=None,
    max_context_len=2048,
    tie_embeddings=True,
)


def scaled(scaling: RopeScaling) -> torch.Tensor:
    return inverse_frequencies(replace(CONFIG, rope_scaling=scaling))


def test_plain_frequencies() -> None:
    wanted = [10000.0 ** (-2 * i / 64) for i in range(32)]
    assert inverse_frequencies(CONFIG).tolist() == pytest.approx(wanted, rel=1e-6)


def test_llama3_keeps_fast_pairs_and_divides_slow_ones() -> None:
    plain = inverse_frequencies(CONFIG)
    ratio = plain / scaled(Llama3Scaling(8.0, 1.0, 4.0, 256))
    turns = 256 * plain / (2 * math.pi)
    assert torch.allclose(ratio[turns > 4], torch.ones(1))
    assert torch.allclose(ratio[turns < 1], torch.tensor(8.0))
    between = ratio[(turns > 1) & (turns < 4)]
    assert len(between) > 0
    assert ((between > 1) & (between < 8)).all()


def test_yarn_keeps_fast_pairs_and_divides_slow_ones() -> None:
    ratio = inverse_frequencies(CONFIG) / scaled(YarnScaling(4.0, 512, 1.0))
    assert ratio[0] == pytest.approx(1.0)
    assert ratio[-1] == pytest.approx(4.0)
    assert (ratio.diff() >= -1e-5).all()


def test_linear_and_factors() -> None:
    plain = inverse_frequencies(CONFIG)
    assert torch.equal(scaled(LinearScaling(4.0)), plain / 4)
    assert torch.equal(scaled(FactorScaling((2.0,) * 32)), plain / 2)


@pytest.mark.parametrize("scaling", [YarnScaling(2.0, 1, 1.0), YarnScaling(1e9, 1 << 30, 1.0)])
def test_extreme_yarn_stays_finite(scaling: YarnScaling) -> None:
    assert scaled(scaling).isfinite().all()


def test_rotation_keeps_lengths_and_depends_on_distance_only() -> None:
    rope = Rope(CONFIG, CPU)
    q, k = torch.randn(2, 1, 1, 64, generator=torch.Generator().manual_seed(0))

    def score(query_at: int, key_at: int) -> float:
        rotated_q = rope.at(torch.tensor([query_at]))(q)
        rotated_k = rope.at(torch.tensor([key_at]))(k)
        assert float(rotated_q.norm()) == pytest.approx(float(q.norm()), rel=1e-5)
        return float((rotated_q * rotated_k).sum())

    assert score(17, 5) == pytest.approx(score(112, 100), abs=1e-3)
    assert score(17, 5) != pytest.approx(score(17, 6), abs=1e-3)
    assert torch.equal(rope.at(torch.tensor([0]))(q), q)


def test_yarn_scales_the_rotated_vectors() -> None:
    config = replace(CONFIG, rope_scaling=YarnScaling(4.0, 512, attention_factor=1.25))
    x = torch.ones(1, 1, 64)
    assert torch.allclose(Rope(config, CPU).at(torch.tensor([0]))(x), 1.25 * x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norm(dtype: torch.dtype) -> None:
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    weight = torch.linspace(0.5, 2.0, 64).to(dtype)
    found = RMSNorm(weight, 1e-5)(x)
    assert found.dtype == dtype
    exact: Any = x.double()
    wanted = exact / (exact.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    tolerance = 1e-6 if dtype == torch.float32 else 0.02
    assert torch.allclose(found.double(), wanted, rtol=tolerance, atol=tolerance)
