"""Our networks against transformers, on tiny random weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from flm.kernels.weight_only import WeightFormat
from flm.models.files import open_model
from tests.parity.forward import Cached, load, logits_of
from tests.support.tiny import (
    LINEAR_SCALING,
    LLAMA3_SCALING,
    YARN_SCALING,
    Architecture,
    tiny_folder,
    tiny_gguf,
)

IDS = torch.randint(0, 512, (150,), generator=torch.Generator().manual_seed(3)).tolist()

CASES: list[tuple[Architecture, bool, Mapping[str, Any] | None]] = [
    ("llama", True, None),
    ("llama", False, LLAMA3_SCALING),
    ("llama", True, LINEAR_SCALING),
    ("llama", False, YARN_SCALING),
    ("mistral", False, None),
    ("qwen2", True, None),
    ("qwen2", False, YARN_SCALING),
    ("qwen3", True, YARN_SCALING),
    ("qwen3", False, None),
]


def case_name(case: tuple[Architecture, bool, Mapping[str, Any] | None]) -> str:
    architecture, tied, scaling = case
    kind = "plain" if scaling is None else scaling["rope_type"]
    return f"{architecture}-{'tied' if tied else 'untied'}-{kind}"


@torch.inference_mode()
def reference_logits(folder: Path, ids: list[int] = IDS) -> torch.Tensor:
    # In float32 the reference is as far from the truth as we are.
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    logits: torch.Tensor = model.eval()(torch.tensor([ids])).logits[0].float()
    return logits


def assert_close(found: torch.Tensor, wanted: torch.Tensor, tolerance: float = 1e-4) -> None:
    assert found.dtype == torch.float32
    assert wanted.std() > 0.1, "logits this flat would let anything pass"
    assert (found - wanted).abs().max() < tolerance


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_logits_equal_transformers_from_every_format(
    case: tuple[Architecture, bool, Mapping[str, Any] | None], tmp_path: Path
) -> None:
    architecture, tied, scaling = case
    single = tiny_folder(tmp_path / "a", architecture, tied=tied, rope_scaling=scaling)
    wanted = reference_logits(single)
    sharded = tiny_folder(
        tmp_path / "b", architecture, tied=tied, rope_scaling=scaling, sharded=True, old_style=True
    )
    gguf = tiny_gguf(tmp_path / "c.gguf", architecture, tied=tied, rope_scaling=scaling)
    parts = tiny_gguf(
        tmp_path / "d.gguf", architecture, tied=tied, rope_scaling=scaling, num_files=3
    )
    for path in (single, sharded, gguf, parts):
        for exact in (True, False):
            for with_kernels in (exact, False):
                model = load(path, exact=exact, with_kernels=with_kernels)
                assert_close(logits_of(model, IDS), wanted)


def test_scaling_changes_the_logits(tmp_path: Path) -> None:
    """Without this, a scaling that nobody applies would pass the parity tests."""
    plain = logits_of(load(tiny_folder(tmp_path / "plain")), IDS)
    for scaling in (LINEAR_SCALING, LLAMA3_SCALING, YARN_SCALING):
        folder = tiny_folder(tmp_path / scaling["rope_type"], rope_scaling=scaling)
        assert (logits_of(load(folder), IDS) - plain).abs().max() > 0.01


@pytest.mark.parametrize(
    "scaling",
    [
        YARN_SCALING | {"attention_factor": 1.3},
        YARN_SCALING | {"beta_fast": 8.0, "beta_slow": 2.0, "truncate": False},
        YARN_SCALING | {"mscale": 0.7, "mscale_all_dim": 1.1},
        YARN_SCALING | {"factor": 40.0},
    ],
)
def test_every_yarn_option_counts(scaling: dict[str, Any], tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path, rope_scaling=scaling)
    assert_close(logits_of(load(folder), IDS), reference_logits(folder))


def test_biases_on_every_product(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path, overrides={"attention_bias": True, "mlp_bias": True})
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder)
    assert_close(logits_of(load(folder), IDS), reference_logits(folder))


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_a_folder_that_transformers_wrote(architecture: Architecture, tmp_path: Path) -> None:
    first = tiny_folder(tmp_path / "a", architecture, tied=False, rope_scaling=YARN_SCALING)
    second = tiny_folder(tmp_path / "b", architecture)
    model = AutoModelForCausalLM.from_pretrained(first, dtype=torch.float32)
    model.save_pretrained(second, max_shard_size="100KB")
    (second / "model.safetensors").unlink()
    assert len({tensor.path for tensor in open_model(second).safetensors_tensors.values()}) > 1
    assert_close(logits_of(load(second), IDS), reference_logits(first))


def test_the_sliding_window_caps_the_context_where_the_two_are_equal(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path, "mistral", overrides={"sliding_window": 64})
    assert open_model(folder).config.max_context_len == 64
    assert_close(logits_of(load(folder), IDS[:64]), reference_logits(folder)[:64])


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3"])
def test_bfloat16_stays_near_float32(architecture: Architecture, tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path, architecture)
    wanted = logits_of(load(folder), IDS)
    found = logits_of(load(folder, dtype=torch.bfloat16, exact=False), IDS)
    assert torch.nn.functional.cosine_similarity(found, wanted).min() > 0.99


@pytest.mark.parametrize("format_", ["int8", "int4"])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_weights_in_few_bits_stay_near_float32(
    architecture: Architecture, format_: WeightFormat, tmp_path: Path
) -> None:
    folder = tiny_folder(tmp_path, architecture)
    wanted = logits_of(load(folder), IDS)
    found = logits_of(load(folder, dtype=torch.bfloat16, exact=False, weight_format=format_), IDS)
    alike = torch.nn.functional.cosine_similarity(found, wanted).mean()
    assert alike > (0.99 if format_ == "int8" else 0.9)
    assert not torch.equal(found, logits_of(load(folder, dtype=torch.bfloat16, exact=False), IDS))


@pytest.mark.parametrize("quantisation", ["F16", "BF16", "Q8_0", "Q5_1", "Q4_0"])
def test_a_quantised_gguf_equals_transformers_on_it(quantisation: str, tmp_path: Path) -> None:
    tiny_folder(tmp_path)
    path = tiny_gguf(tmp_path / "model.gguf", quantisation=quantisation, tied=False)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32)
    with torch.inference_mode():
        wanted = model.eval()(torch.tensor([IDS])).logits[0]
    assert_close(logits_of(load(path), IDS), wanted)


# --- one result, however it is computed ----------------------------------------------------------

CUTS = [(1,), (16, 32), (7, 9, 80, 149), tuple(range(1, 150))]


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("exact", [True, False])
def test_chunked_is_whole(architecture: Architecture, exact: bool, tmp_path: Path) -> None:
    model = load(tiny_folder(tmp_path, architecture), exact=exact)
    whole = logits_of(model, IDS)
    for cuts in CUTS:
        chunked = logits_of(model, IDS, cuts)
        assert torch.equal(chunked, whole) if exact else (chunked - whole).abs().max() < 1e-4


@torch.inference_mode()
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_exact_decode_in_company_is_prefill_alone(
    architecture: Architecture, tmp_path: Path
) -> None:
    """Sequences of different lengths decode together; every row is bit for bit what the same
    tokens give in one prefill of their own."""
    model = load(tiny_folder(tmp_path, architecture))
    streams = [IDS[start:] for start in range(0, 60, 3)]
    for num_sequences in (1, 2, 3, 5, 20):
        cached = Cached(model, max_len=128, num_sequences=num_sequences)
        prompts = [3 + 4 * number for number in range(num_sequences)]
        for number, length in enumerate(prompts):
            cached.chunk(streams[number][:length], number)
        steps = [
            cached.decode([streams[n][length + step] for n, length in enumerate(prompts)])
            for step in range(3)
        ]
        for number, length in enumerate(prompts):
            alone = logits_of(model, streams[number][: length + 3])[length:]
            assert torch.equal(torch.stack([step[number] for step in steps]), alone)
