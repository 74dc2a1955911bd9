import re
import signal
import subprocess
import sys

import pytest

from flm.errors import ConfigError
from flm.version import __version__
from tests.cli.conftest import ROOT, invoke, spawn

HEAVY = ("torch", "transformers", "fastapi", "uvicorn", "huggingface_hub")


def test_version():
    assert invoke("version").out == f"FLM v{__version__}\n"
    assert invoke("-v").out == invoke("--version").out == f"FLM v{__version__}\n"
    assert invoke("version", "--json").json == {"version": __version__}


@pytest.mark.parametrize("command", [["version"], ["port"], ["list"], ["--help"], ["serve", "-h"]])
def test_light_commands_import_nothing_heavy(command):
    code = (
        "import sys\nsys.argv = ['flm', *sys.argv[1:]]\nfrom flm.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print(sorted(set({HEAVY}) & set(sys.modules)), file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert result.stderr == "[]\n"


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "flm", "version"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stdout == f"FLM v{__version__}\n"


def test_help_lists_every_command():
    out = invoke("--help").out
    names = ("serve", "run", "ask", "plan", "list", "pull", "remove", "check", "validate", "port")
    for name in (*names, "version"):
        assert re.search(rf"^  {name} ", out, re.MULTILINE)


def test_an_unknown_command_is_a_usage_error():
    outcome = invoke("sreve")
    assert outcome.code == 2
    assert "sreve" in outcome.err


def test_our_errors_become_one_line_and_exit_code_1(monkeypatch):
    def fail():
        raise ConfigError("What is wrong. What to do.")

    monkeypatch.setattr("flm.models.store.open_store", fail)
    outcome = invoke("list")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == "Error: What is wrong. What to do.\n"


def test_ctrl_c_is_exit_code_130(monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr("flm.models.store.open_store", interrupt)
    outcome = invoke("list")
    assert (outcome.code, outcome.err.strip()) == (130, "")


def test_a_reader_that_goes_away_is_no_error():
    command = [sys.executable, "-m", "flm.cli.main", "list", "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == ""
    process.wait(30)


def test_a_real_ctrl_c_in_a_real_process(tmp_path):
    code = (
        "import flm.models.store as store, signal\n"
        # Where the tests run in the background of a script, their children ignore the signal.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "store.open_store = lambda: signal.raise_signal(signal.SIGINT)\n"
        "import sys; sys.argv = ['flm', 'list']\n"
        "from flm.cli.main import main; main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert signal.Signals.SIGINT == 2
    assert result.returncode == 130
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_terminal_encoding(encoding):
    assert spawn("list", PYTHONIOENCODING=encoding).code == 0
    assert spawn("serve", "modèle:1", PYTHONIOENCODING=encoding).code == 1


def test_port(monkeypatch):
    assert invoke("port").out == "Server Port: 52625\n"
    assert invoke("port", "--json").json == {"port": 52625}
    monkeypatch.setenv("FLM_SERVE_PORT", "6000")
    assert invoke("port").out == "Server Port: 6000\n"
    monkeypatch.setenv("FLM_SERVE_PORT", "70000")
    outcome = invoke("port")
    assert outcome.code == 1
    assert "FLM_SERVE_PORT" in outcome.err
    monkeypatch.setenv("FLM_SERVE_PORT", "many")
    outcome = invoke("port")
    assert outcome.code == 2
    assert "FLM_SERVE_PORT" in outcome.err
