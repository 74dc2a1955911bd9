"""Formats of the weights and of the cache, and which of them go together."""

from pathlib import Path
from typing import Any

import pytest
import torch

from flm.config import ServeConfig
from flm.errors import ConfigError
from flm.kvcache.layout import CacheLayout, LayerState
from flm.models.config import ModelConfig
from flm.models.files import open_model
from flm.wiring.numerics import choose_numerics, num_pool_blocks
from tests.e2e.conftest import tiny_config
from tests.support.app import running_app
from tests.support.replies import COMPLETIONS
from tests.support.tiny import tiny_folder


@pytest.fixture(scope="module")
def shape(smollm2_gguf: Path) -> ModelConfig:
    """A network that the native kernels know."""
    return open_model(smollm2_gguf).config


@pytest.mark.parametrize(
    ("options", "dtype", "kv_dtype", "is_exact", "is_native"),
    [
        ({}, "bfloat16", "bfloat16", False, True),
        ({"kv_dtype": "bfloat16"}, "bfloat16", "bfloat16", False, True),
        ({"kv_dtype": "int8"}, "bfloat16", "int8", False, True),
        ({"kernels": "torch"}, "float32", "float32", False, False),
        ({"kernels": "torch", "kv_dtype": "float16"}, "float32", "float16", False, False),
        ({"dtype": "float32"}, "float32", "float32", True, False),
        ({"dtype": "float32", "kv_dtype": "float32"}, "float32", "float32", True, False),
        ({"dtype": "float32", "kv_dtype": "bfloat16"}, "float32", "bfloat16", False, False),
        ({"dtype": "bfloat16"}, "bfloat16", "bfloat16", False, False),
        ({"dtype": "bfloat16", "kv_dtype": "float32"}, "bfloat16", "float32", False, False),
    ],
)
def test_the_cache_has_the_format_of_the_weights_unless_told_otherwise(
    shape: ModelConfig,
    options: dict[str, Any],
    dtype: str,
    kv_dtype: str,
    is_exact: bool,
    is_native: bool,
) -> None:
    found = choose_numerics(ServeConfig(device="cpu", **options), shape)
    assert (found.dtype, found.kv_dtype) == (getattr(torch, dtype), getattr(torch, kv_dtype))
    assert (found.is_exact, found.kernels is not None) == (is_exact, is_native)


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_weights_in_few_bits(shape: ModelConfig, weights: Any) -> None:
    found = choose_numerics(ServeConfig(device="cpu", weights=weights), shape)
    assert (found.dtype, found.kv_dtype, found.kernels) == (torch.bfloat16, torch.bfloat16, None)
    assert found.dtype_name == f"bfloat16 with {weights} weights"
    assert not found.keeps_bits
    for options in ({"dtype": "float32"}, {"kernels": "native"}):
        with pytest.raises(ConfigError, match=f"--weights {weights} does not go with") as caught:
            choose_numerics(ServeConfig(device="cpu", weights=weights, **options), shape)
        assert caught.value.param == "weights"


@pytest.mark.parametrize("kernels", ["auto", "native"])
@pytest.mark.parametrize("kv_dtype", ["float32", "float16"])
def test_the_native_kernels_keep_no_other_format(
    shape: ModelConfig, kernels: Any, kv_dtype: Any
) -> None:
    config = ServeConfig(device="cpu", kernels=kernels, kv_dtype=kv_dtype)
    with pytest.raises(ConfigError, match=f"--kv-dtype {kv_dtype}: .*--kernels torch") as caught:
        choose_numerics(config, shape)
    assert caught.value.param == "kv_dtype"


@pytest.mark.parametrize(
    "options", [{"kernels": "torch"}, {"dtype": "float32"}, {"dtype": "bfloat16"}]
)
def test_plain_torch_keeps_no_bytes(shape: ModelConfig, options: dict[str, Any]) -> None:
    config = ServeConfig(device="cpu", kv_dtype="int8", **options)
    with pytest.raises(ConfigError, match=r"--kv-dtype int8: .*--kv-dtype bfloat16") as caught:
        choose_numerics(config, shape)
    assert caught.value.param == "kv_dtype"


def test_half_the_bytes_hold_twice_the_tokens(
    shape: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = CacheLayout((LayerState(num_kv_heads=3, head_dim=64),) * 30)
    memory = type("Memory", (), {"available": 200_000_000})
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)
    blocks = []
    for kv_dtype in ("float32", "bfloat16"):
        config = ServeConfig(device="cpu", kernels="torch", kv_dtype=kv_dtype)  # type: ignore[arg-type]
        numerics = choose_numerics(config, shape)
        blocks.append(num_pool_blocks(layout, numerics, asked_tokens=None, context_len=2**20))
    assert blocks[1] // 2 == blocks[0] > 0
    config = ServeConfig(device="cpu", kv_dtype="int8")
    numerics = choose_numerics(config, shape)
    bytes_ = num_pool_blocks(layout, numerics, asked_tokens=None, context_len=2**20)
    assert bytes_ == pytest.approx(blocks[1] * 128 / 66, abs=1)


def test_a_cache_of_bytes_serves_and_is_told(tmp_path: Path) -> None:
    """Alone, in a crowd, from the cache."""
    model = str(tiny_folder(tmp_path / "tiny"))
    config = ServeConfig(model=model, threads=1, kernels="native", kv_dtype="int8")
    body = {"prompt": [list(range(5, 90)), list(range(9, 70))], "max_tokens": 40, "temperature": 0}
    with running_app(config, tmp_path / "store") as app, app.client() as client:
        listed = client.get("/v1/models").json()["data"][0]
        assert (listed["dtype"], listed["kv_dtype"]) == ("int8", "int8")
        replies = [client.post(COMPLETIONS, json={**body, "n": n}).json() for n in (1, 2)]
    texts = [[choice["text"] for choice in reply["choices"]] for reply in replies]
    assert texts[1] == [texts[0][0]] * 2 + [texts[0][1]] * 2
    assert replies[1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 64 + 32


@pytest.mark.parametrize("kv_dtype", ["bfloat16", "float16"])
def test_a_narrow_cache_serves_wide_weights(tmp_path: Path, kv_dtype: str) -> None:
    """Alone, in a crowd, from the cache: scattered blocks and neighbours, slices and decodes."""
    config = tiny_config(tiny_folder(tmp_path / "tiny"), kernels="torch", kv_dtype=kv_dtype)
    body = {"prompt": [list(range(5, 90)), list(range(9, 70))], "max_tokens": 12, "temperature": 0}
    with running_app(config, tmp_path / "store") as app, app.client() as client:
        assert (app.model.info.dtype, app.model.info.exact) == ("float32", False)
        replies = [client.post(COMPLETIONS, json={**body, "n": n}).json() for n in (1, 2)]
        pool = app.model.engine._engine._runner._pool  # type: ignore[attr-defined]
        assert pool.keys[0].dtype == getattr(torch, kv_dtype)
    texts = [[choice["text"] for choice in reply["choices"]] for reply in replies]
    assert texts[1] == [texts[0][0]] * 2 + [texts[0][1]] * 2
    assert replies[1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 64 + 32
