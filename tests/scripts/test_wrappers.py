"""The shell scripts, in a copy of the checkout where the programs they call are stand-ins."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTE = '#!/bin/sh\necho "$(basename "$0") $*" >> "$LOG"\n'


class Checkout:
    """A copy with spaces in its path. Every stand-in writes its name and arguments to ``log``."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a check out"
        self.log_path = folder / "log"
        (self.root / "scripts").mkdir(parents=True)
        for name in ("serve", "test", "bench", "judge"):
            shutil.copy2(ROOT / "scripts" / name, self.root / "scripts" / name)
        shutil.copytree(ROOT / ".ci", self.root / ".ci")
        self.stand_in("scripts/setup")
        for name in ("flm", "ruff", "mypy", "python"):
            self.stand_in(f".venv/bin/{name}")

    def stand_in(self, name: str, then: str = "") -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(NOTE + then)
        path.chmod(0o755)

    def start(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.root / name), *arguments],
            cwd="/",
            env={**os.environ, "LOG": str(self.log_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        with self.start(name, *arguments) as process:
            output, _ = process.communicate()
        return subprocess.CompletedProcess(name, process.returncode, output)

    def log(self) -> list[str]:
        return self.log_path.read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_serve_passes_its_arguments_on(checkout: Checkout) -> None:
    assert checkout.run("scripts/serve", "a model", "--port", "0").returncode == 0
    assert checkout.log() == ["setup ", "flm serve a model --port 0"]


def test_serve_is_replaced_by_the_server_so_that_signals_reach_it(checkout: Checkout) -> None:
    checkout.stand_in(
        ".venv/bin/flm", "trap 'exit 42' TERM\necho $$\nwhile :; do sleep 0.05; done\n"
    )
    with checkout.start("scripts/serve") as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 42


@pytest.mark.parametrize(
    "name", ["scripts/serve", "scripts/test", "scripts/bench", "scripts/judge"]
)
def test_nothing_runs_when_setup_fails(checkout: Checkout, name: str) -> None:
    checkout.stand_in("scripts/setup", "exit 1\n")
    assert checkout.run(name).returncode != 0
    assert [line.split()[0] for line in checkout.log()] == ["setup"]


def test_bench_sets_its_extra_up(checkout: Checkout) -> None:
    assert checkout.run("scripts/bench", "--repeat", "1").returncode == 0
    script = checkout.root / "scripts/bench_main.py"
    assert checkout.log() == ["setup --bench", f"python {script} --repeat 1"]


def test_test_runs_every_step(checkout: Checkout) -> None:
    result = checkout.run("scripts/test", "--full", "tests/x.py")
    assert result.returncode == 0
    assert checkout.log() == [
        "setup --test",
        "ruff format --check",
        "ruff check --no-cache",
        "mypy ",
        "flm pull smollm2:135m",
        "python -m pytest --forbid-skips --durations=15 --full tests/x.py",
    ]
    assert "All checks passed" in result.stdout


@pytest.mark.parametrize("name", ["ruff", "mypy", "flm", "python"])
def test_test_goes_on_after_a_failure_and_fails_at_the_end(checkout: Checkout, name: str) -> None:
    checkout.stand_in(f".venv/bin/{name}", "exit 3\n")
    result = checkout.run("scripts/test")
    assert result.returncode == 1
    assert len(checkout.log()) == 6
    assert "FAILED" in result.stdout.splitlines()[-1]


def test_the_judges_come_last_and_only_when_asked(checkout: Checkout) -> None:
    assert checkout.run("scripts/test", "-k", "a b", "--judges").returncode == 0
    *_, tests, setup, judges = checkout.log()
    assert tests == "python -m pytest --forbid-skips --durations=15 -k a b"
    assert (setup, judges.split("/")[-1]) == ("setup ", "judge_main.py")
    checkout.stand_in("scripts/judge", "exit 1\n")
    result = checkout.run("scripts/test", "--judges")
    assert result.returncode == 1
    assert result.stdout.splitlines()[-1].startswith("FAILED: judges (")


def test_judge_passes_its_arguments_on(checkout: Checkout) -> None:
    assert checkout.run("scripts/judge", "one", "--url", "http://x/v1").returncode == 0
    script = checkout.root / "scripts/judges/judge_main.py"
    assert checkout.log() == ["setup ", f"python {script} one --url http://x/v1"]


def test_ci_runs_the_whole_check(checkout: Checkout) -> None:
    assert checkout.run(".ci/run").returncode == 0
    assert len(checkout.log()) == 6
    checkout.stand_in(".venv/bin/mypy", "exit 1\n")
    assert checkout.run(".ci/run").returncode == 1


# --- finding a Python --------------------------------------------------------------------------


def run_setup(folder: Path, path: str, **env: str) -> subprocess.CompletedProcess[str]:
    (folder / "scripts").mkdir(exist_ok=True)
    shutil.copy2(ROOT / "scripts/setup", folder / "scripts/setup")
    return subprocess.run(
        ["/bin/bash", folder / "scripts/setup", "--flag"],
        env={"PATH": path, "LOG": str(folder / "log"), **env},
        capture_output=True,
        text=True,
        check=False,
    )


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)


GOOD = '[ "$1" = -c ] || echo "$(basename "$0") ran $(basename "$1") $2"\n'
OLD = "exit 1\n"


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("dirname", "basename", "cat"):
        program = shutil.which(name)
        assert program is not None
        (folder / name).symlink_to(program)
    return folder


def test_no_python_says_what_to_do(tmp_path: Path, tools: Path) -> None:
    write_program(tools / "python3", OLD)
    result = run_setup(tmp_path, str(tools))
    assert result.returncode == 1
    assert "no Python 3.11 or newer" in result.stderr
    assert "apt-get install python3" in result.stderr
    assert "FLM_PYTHON=" in result.stderr


def test_an_old_python_is_passed_over(tmp_path: Path, tools: Path) -> None:
    write_program(tools / "python3", OLD)
    write_program(tools / "python3.12", GOOD)
    result = run_setup(tmp_path, str(tools))
    assert result.stdout == "python3.12 ran setup_env.py --flag\n"


def test_a_named_python_is_taken_or_refused(tmp_path: Path, tools: Path) -> None:
    write_program(tools / "python3", GOOD)
    write_program(tmp_path / "mine", GOOD)
    chosen = run_setup(tmp_path, str(tools), FLM_PYTHON=str(tmp_path / "mine"))
    assert chosen.stdout == "mine ran setup_env.py --flag\n"
    write_program(tmp_path / "mine", OLD)
    refused = run_setup(tmp_path, str(tools), FLM_PYTHON=str(tmp_path / "mine"))
    assert refused.returncode == 1
    assert "is not a Python 3.11 or newer" in refused.stderr
