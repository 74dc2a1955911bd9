from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.config import (
    OPTIONS,
    OPTIONS_BY_NAME,
    ServeConfig,
    ToolDialect,
    chunk_len,
    effective_ctx_len,
    model_dir,
    round_up_pow2,
)
from flm.errors import ConfigError
from flm.text.parsers import TOOL_DIALECTS


def test_every_field_has_exactly_one_option():
    names = [option.name for option in OPTIONS]
    assert names == [item.name for item in fields(ServeConfig)]


def test_flags_and_variables_are_named_alike():
    assert OPTIONS_BY_NAME["ctx_len"].flag == "--ctx-len"
    assert OPTIONS_BY_NAME["ctx_len"].env == "FLM_CTX_LEN"
    assert OPTIONS_BY_NAME["port"].env == "FLM_SERVE_PORT"
    assert len({option.env for option in OPTIONS}) == len(OPTIONS)


def test_the_defaults():
    config = ServeConfig()
    assert (config.model, config.host, config.port) == ("smollm2:135m", "127.0.0.1", 52625)
    assert (config.parallel, config.q_len, config.dtype) == (16, 64, "auto")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", "  "),
        ("host", ""),
        ("port", -1),
        ("port", 65536),
        ("ctx_len", 0),
        ("ctx_len", 2**31),
        ("prefill_chunk_len", -5),
        ("parallel", 0),
        ("q_len", 0),
        ("q_tokens", 0),
        ("kv_tokens", 511),
        ("served_name", ("a", " ")),
        ("normalize", ("a", "(b")),
        ("dtype", "int8"),
        ("kv_dtype", "int4"),
        ("device", "cuda:"),
        ("device", "tpu"),
        ("threads", 0),
        ("adaptations", "loud"),
        ("response_store", -1),
        ("grace_s", -1.0),
        ("grace_s", float("nan")),
        ("keepalive_s", float("inf")),
        ("keepalive_s", 0.0),
        ("log_level", "loud"),
        ("tool_dialect", "esperanto"),
    ],
)
def test_a_value_out_of_range_names_flag_and_variable(name, value):
    option = OPTIONS_BY_NAME[name]
    with pytest.raises(ConfigError) as caught:
        ServeConfig(**{name: value})
    assert option.flag in str(caught.value)
    assert option.env in str(caught.value)
    assert repr(value) in str(caught.value)


def test_every_dialect_can_be_named():
    assert get_args(ToolDialect) == ("auto", *TOOL_DIALECTS)


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:0", "cuda:11"])
def test_devices(device):
    assert ServeConfig(device=device).device == device


@pytest.mark.parametrize(("asked", "got"), [(1, 512), (512, 512), (513, 1024), (5000, 8192)])
def test_chunk_len(asked, got):
    assert chunk_len(asked) == got


@given(st.integers(1, 2**30), st.sampled_from([1, 512, 4096]))
def test_rounding_gives_the_next_power_of_two(value, minimum):
    got = round_up_pow2(value, minimum)
    assert got & (got - 1) == 0
    assert got >= max(value, minimum)
    assert got == minimum or got // 2 < value


@pytest.mark.parametrize(
    ("asked", "model_max", "got"),
    [
        (8000, 131072, 8192),
        (1, 8192, 512),
        (8192, 8192, 8192),
        (5000, 6000, 6000),  # only the rounding passes the maximum
        (40000, 40960, 40960),
        (100, 256, 256),
    ],
)
def test_effective_ctx_len(asked, model_max, got):
    assert effective_ctx_len(asked, model_max) == got


def test_a_context_above_the_models_maximum_names_both():
    with pytest.raises(ConfigError, match=r"9000.*8192"):
        effective_ctx_len(9000, 8192)


def test_no_context_asked_takes_the_default_within_the_maximum():
    assert effective_ctx_len(None, 8192) == 8192
    assert effective_ctx_len(None, 131072, 16384) == 16384
    assert effective_ctx_len(None, 4096, 16384) == 4096


def test_model_dir(monkeypatch):
    monkeypatch.setenv("FLM_MODEL_PATH", "/somewhere/models")
    assert model_dir() == Path("/somewhere/models")
    monkeypatch.setenv("FLM_MODEL_PATH", "  ")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert model_dir() == Path("/data/flm/models")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/me")
    assert model_dir() == Path("/home/me/.local/share/flm/models")
    monkeypatch.setenv("FLM_MODEL_PATH", "~/m")
    assert model_dir() == Path("/home/me/m")
