import inspect
import socket
import sys
from dataclasses import fields
from types import ModuleType

import pytest

from flm.cli.ports import require_free_port
from flm.cli.serve import serve
from flm.config import OPTIONS, ServeConfig
from flm.errors import ConfigError
from tests.cli.conftest import invoke


@pytest.fixture
def served(monkeypatch):
    """The configurations that reached the server, which is a stand-in."""
    configs: list[ServeConfig] = []
    host = ModuleType("flm.cli.host")
    host.run_server = lambda config: configs.append(config) or 0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flm.cli.host", host)
    return configs


@pytest.fixture
def busy_port():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def test_every_setting_is_a_parameter():
    assert list(inspect.signature(serve).parameters) == [item.name for item in fields(ServeConfig)]


def test_help_names_every_flag_and_variable():
    out = invoke("serve", "--help").out.replace("\n", " ")
    flat = " ".join(out.split())
    for option in OPTIONS:
        assert option.env in flat
        if not option.is_argument:
            assert option.flag in flat


def test_flags_become_the_configuration(tiny, served):
    invoke("pull", "tiny")
    outcome = invoke(
        "serve", "tiny", "--host", "127.0.0.1", "--port", "0", "--ctx-len", "600",
        "--prefill-chunk-len", "5000", "--parallel", "2", "--q-len", "3", "--q-tokens", "4000",
        "--kv-tokens", "1024",
        "--served-name", "a", "--served-name", "*", "--normalize", "Today is .*",
        "--normalize", "x-.*", "--no-cors", "--dtype", "float32",
        "--kv-dtype", "bfloat16", "--weights", "int4",
        "--device", "cpu", "--cuda-graphs", "off", "--threads", "1",
        "--adaptations", "refuse", "--require-model",
        "--response-store", "7", "--grace-s", "1.5", "--keepalive-s", "2", "--log-level", "debug",
    )  # fmt: skip
    assert outcome.code == 0
    assert served == [
        ServeConfig(
            model="tiny",
            port=0,
            ctx_len=600,
            prefill_chunk_len=5000,
            parallel=2,
            q_len=3,
            q_tokens=4000,
            kv_tokens=1024,
            served_name=("a", "*"),
            normalize=("Today is .*", "x-.*"),
            cors=False,
            dtype="float32",
            weights="int4",
            kv_dtype="bfloat16",
            device="cpu",
            cuda_graphs="off",
            threads=1,
            adaptations="refuse",
            require_model=True,
            response_store=7,
            grace_s=1.5,
            keepalive_s=2.0,
            log_level="debug",
        )
    ]


def test_variables_become_the_configuration_and_flags_win(tiny, served, monkeypatch):
    invoke("pull", "tiny")
    variables = {
        "FLM_MODEL": "tiny",
        "FLM_SERVE_PORT": "0",
        "FLM_CTX_LEN": "700",
        "FLM_CORS": "0",
        "FLM_SERVED_NAME": "a b",
        "FLM_NORMALIZE": r"Today\sis x-.*",
        "FLM_Q_LEN": "9",
        "FLM_GRACE_S": "3",
        "FLM_DTYPE": "float32",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert invoke("serve", "--q-len", "5").code == 0
    config = served[0]
    assert (config.model, config.port, config.ctx_len, config.cors) == ("tiny", 0, 700, False)
    assert (config.served_name, config.q_len, config.grace_s) == (("a", "b"), 5, 3.0)
    assert config.dtype == "float32"
    assert config.normalize == (r"Today\sis", "x-.*")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FLM_SERVE_PORT", "abc"),
        ("FLM_SERVE_PORT", "70000"),
        ("FLM_CTX_LEN", "0"),
        ("FLM_CTX_LEN", "4k"),
        ("FLM_CORS", "perhaps"),
        ("FLM_DTYPE", "int3"),
        ("FLM_DEVICE", "gpu"),
        ("FLM_NORMALIZE", "(Today"),
        ("FLM_GRACE_S", "nan"),
        ("FLM_THREADS", "1.5"),
        ("FLM_ADAPTATIONS", "loud"),
    ],
)
def test_a_bad_variable_is_named(served, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    outcome = invoke("serve")
    assert outcome.code in (1, 2)
    assert name in outcome.err
    assert served == []


def test_a_missing_model_is_pulled_first(tiny, served):
    outcome = invoke("serve", "tiny", "--port", "0")
    assert outcome.code == 0
    assert "tiny is not installed yet; pulling it." in outcome.err
    assert tiny.gguf.num_fetches == 1
    assert invoke("serve", "tiny", "--port", "0").err == ""
    assert tiny.gguf.num_fetches == 1


def test_an_unknown_tag_gets_near_names(served):
    outcome = invoke("serve", "smollm2:153m", "--port", "0")
    assert outcome.code == 1
    assert "Did you mean smollm2:135m" in outcome.err


def test_a_context_larger_than_the_models_names_both_before_anything_is_pulled(tiny, served):
    outcome = invoke("serve", "tiny", "--port", "0", "--ctx-len", "1001")
    assert outcome.code == 1
    assert "1001" in outcome.err
    assert "1000" in outcome.err
    assert tiny.gguf.num_fetches == 0


def test_a_context_that_only_rounding_makes_too_large_is_fine(tiny, served):
    assert invoke("serve", "tiny", "--port", "0", "--ctx-len", "999").code == 0


def test_a_damaged_model_is_not_served(tiny, served):
    invoke("pull", "tiny")
    (tiny.root / "tiny--1m" / "tiny.gguf").write_bytes(b"")
    outcome = invoke("serve", "tiny", "--port", "0")
    assert outcome.code == 1
    assert "--force" in outcome.err
    assert served == []


def test_a_path_is_served_without_a_pull(tmp_path, served):
    path = tmp_path / "my.gguf"
    path.write_bytes(b"x")
    assert invoke("serve", str(path), "--port", "0").code == 0
    assert served[0].model == str(path)


def test_a_port_in_use_is_found_before_anything_is_pulled(tiny, served, busy_port):
    outcome = invoke("serve", "tiny", "--port", str(busy_port))
    assert outcome.code == 1
    assert f"Port {busy_port} on 127.0.0.1 is in use" in outcome.err
    assert "--port" in outcome.err
    assert "FLM_SERVE_PORT" in outcome.err
    assert tiny.gguf.num_fetches == 0


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a" * 300, "..", "203.0.113.1"])
def test_a_host_that_is_not_ours(host):
    with pytest.raises(ConfigError, match=r"host|--host"):
        require_free_port(host, 0)


def test_checking_a_port_does_not_take_it(busy_port):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    require_free_port("127.0.0.1", free)
    require_free_port("localhost", free)
    with socket.socket() as later:
        later.bind(("127.0.0.1", free))


def test_the_servers_exit_code_is_the_programs(tiny, monkeypatch):
    host = ModuleType("flm.cli.host")
    host.run_server = lambda config: 3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flm.cli.host", host)
    assert invoke("serve", "tiny", "--port", "0").code == 3


@pytest.mark.parametrize("model", ["nothing:1b", "./nothing.gguf", "/nowhere/at/all"])
def test_an_unknown_model_is_told_before_a_port_in_use(served, busy_port, model):
    outcome = invoke("serve", model, "--port", str(busy_port))
    assert outcome.code == 1
    assert model.removeprefix("./") in outcome.err
    assert "in use" not in outcome.err
    assert served == []
