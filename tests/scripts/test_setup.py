"""scripts/setup with a pip that only writes down what it is asked; real installs are CI's job."""

import json
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
import pytest
import setup_env
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from setuplib import install, state
from setuplib.install import Tools
from setuplib.state import Layout, SetupError, Stamp, Wish

ROOT = Path(__file__).parents[2]
ANYTHING = Wish(extras=frozenset(), torch=None, python=None)
PYPROJECT = """
[project]
name = "thing"
dependencies = ["torch>=2.6", "httpx"]
[project.optional-dependencies]
test = ["pytest", "httpx"]
bench = ["rich"]
"""


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    root = tmp_path / "a check out"
    root.mkdir()
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "constraints.txt").write_text("httpx==1.0\ntorch==2.13.0\n")
    return Layout(root)


class FakePip:
    """Stands for pip and torch: notes the calls, fails where it is told to."""

    def __init__(self, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
        self.layout = layout
        self.calls: list[str] = []
        self.complaints: dict[str, str] = {}
        self.torch = "torch 2.13.0+cpu"
        monkeypatch.setattr(Tools, "try_pip", lambda _, *arguments: self._pip(arguments))
        monkeypatch.setattr(install, "make_venv", self._make_venv)
        monkeypatch.setattr(install, "describe_torch", lambda *_: self.torch)

    def _pip(self, arguments: tuple[str, ...]) -> str | None:
        self.calls.append(" ".join(arguments))
        if arguments[-2] == "-e":
            (self.layout.python.parent / "flm").touch()
        return next((text for part, text in self.complaints.items() if part in arguments), None)

    def _make_venv(self, tools: Tools, torch: str) -> None:
        install.discard(tools.layout)
        self.calls.append(f"venv {torch}")
        self.layout.python.parent.mkdir(parents=True)
        self.layout.marker.touch()
        self.layout.python.symlink_to(sys.executable)

    def took(self) -> list[str]:
        calls, self.calls = self.calls, []
        return calls


@pytest.fixture
def pip(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> FakePip:
    monkeypatch.setattr(sys, "platform", "linux")
    return FakePip(layout, monkeypatch)


def make(layout: Layout, wish: Wish = ANYTHING) -> None:
    install.make(layout, wish, None)


# --- what is done and what is not --------------------------------------------------------------


def test_a_fresh_checkout_gets_an_environment_and_a_second_run_nothing(
    layout: Layout, pip: FakePip
) -> None:
    assert not state.is_ready(layout, ANYTHING)
    make(layout)
    venv, torch, packages, project = pip.took()
    assert venv == "venv cpu"
    assert torch == "install --no-deps torch==2.13.0+cpu"
    assert packages.endswith("constraints.txt pip setuptools torch>=2.6 httpx")
    assert project == f"install -q --no-deps --no-build-isolation -e {layout.root}"
    assert state.is_ready(layout, ANYTHING)


def test_extras_are_added_and_kept(layout: Layout, pip: FakePip) -> None:
    make(layout)
    with_test = replace(ANYTHING, extras=frozenset({"test"}))
    assert not state.is_ready(layout, with_test)
    pip.took()
    make(layout, with_test)
    assert not any(call.startswith("venv") for call in pip.took())
    assert state.is_ready(layout, with_test)
    assert state.is_ready(layout, ANYTHING)
    make(layout, replace(ANYTHING, extras=frozenset({"bench"})))
    assert any("pip setuptools torch>=2.6 httpx rich pytest" in call for call in pip.took())
    assert state.is_ready(layout, with_test)


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_changed_requirements_are_installed_in_place(
    layout: Layout, pip: FakePip, name: str
) -> None:
    make(layout)
    pip.took()
    with (layout.root / name).open("a") as file:
        file.write("\n# changed\n")
    assert not state.is_ready(layout, ANYTHING)
    make(layout)
    assert not any(call.startswith("venv") for call in pip.took())
    assert state.is_ready(layout, ANYTHING)


def spoil_stamp(layout: Layout) -> None:
    layout.stamp.write_text('{"key": ')


def forget_stamp(layout: Layout) -> None:
    layout.stamp.unlink()


def lose_python(layout: Layout) -> None:
    layout.python.unlink()
    layout.python.symlink_to("/nowhere/python")


def move_away(layout: Layout) -> None:
    fields = json.loads(layout.stamp.read_text())
    layout.stamp.write_text(json.dumps(fields | {"root": "/elsewhere"}))


def age(layout: Layout) -> None:
    fields = json.loads(layout.stamp.read_text())
    layout.stamp.write_text(json.dumps(fields | {"python": "3.11.0rc1"}))


@pytest.mark.parametrize("damage", [spoil_stamp, forget_stamp, lose_python, move_away, age])
def test_a_broken_environment_is_made_again(
    layout: Layout, pip: FakePip, damage: Callable[[Layout], None]
) -> None:
    make(layout)
    pip.took()
    damage(layout)
    assert not state.is_ready(layout, ANYTHING)
    make(layout)
    assert pip.took()[0] == "venv cpu"
    assert state.is_ready(layout, ANYTHING)
    assert not list(layout.root.glob(".venv.*"))


@pytest.mark.parametrize("step", ["torch==2.13.0+cpu", "-c", "-e"])
def test_a_failed_step_leaves_nothing_that_looks_whole(
    layout: Layout, pip: FakePip, step: str
) -> None:
    pip.complaints[step] = "ERROR: disk full"
    with pytest.raises(SetupError, match="disk full"):
        make(layout)
    assert not state.is_ready(layout, ANYTHING)
    pip.complaints.clear()
    make(layout)
    assert state.is_ready(layout, ANYTHING)


def test_an_environment_of_somebody_else_is_moved_and_kept(layout: Layout, pip: FakePip) -> None:
    layout.venv.mkdir()
    (layout.venv / "precious").write_text("mine")
    make(layout)
    (moved,) = layout.root.glob(".venv.replaced-*")
    assert (moved / "precious").read_text() == "mine"
    assert state.is_ready(layout, ANYTHING)


# --- torch -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "complaint",
    ["ERROR: No matching distribution found for torch", "ERROR: ResolutionImpossible: for help"],
)
def test_the_cpu_index_is_asked_only_when_there_is_no_such_build(
    layout: Layout, pip: FakePip, complaint: str
) -> None:
    pip.complaints["torch==2.13.0+cpu"] = complaint
    with pytest.raises(SetupError, match="ERROR"):
        make(layout)
    first, second = pip.took()[1:]
    assert "--index-url" not in first
    assert second == f"install --no-deps --index-url {install.CPU_INDEX} torch==2.13.0+cpu"


def test_another_choice_of_torch_makes_the_environment_again(layout: Layout, pip: FakePip) -> None:
    make(layout)
    pip.took()
    cuda = replace(ANYTHING, torch="cuda")
    assert not state.is_ready(layout, cuda)
    make(layout, cuda)
    assert pip.took()[:2] == ["venv cuda", "install --no-deps torch===2.13.0"]
    # Asked for nothing in particular, the choice stays.
    assert state.is_ready(layout, ANYTHING)
    assert not state.is_ready(layout, replace(ANYTHING, torch="cpu"))


def test_elsewhere_the_plain_build_is_the_cpu_one(
    layout: Layout, pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    make(layout)
    assert pip.took()[1] == "install --no-deps torch==2.13.0"


def test_with_a_torch_of_ones_own_none_is_installed_or_pinned(layout: Layout, pip: FakePip) -> None:
    make(layout, replace(ANYTHING, torch="none"))
    venv, packages, _ = pip.took()
    assert venv == "venv none"
    pins = Path(packages.split(" -c ")[1].split(" pip ")[0])
    assert pins.read_text() == "httpx==1.0\n"


def test_a_missing_torch_of_ones_own_can_be_put_into_the_environment(
    layout: Layout, pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> str:
        raise SetupError("FLM_TORCH=none, and torch cannot be imported")

    own = replace(ANYTHING, torch="none")
    with monkeypatch.context() as patch:
        patch.setattr(install, "describe_torch", missing)
        with pytest.raises(SetupError, match="cannot be imported"):
            make(layout, own)
    assert pip.took() == ["venv none"]
    (layout.venv / "torch of ones own").touch()
    make(layout, own)
    assert (layout.venv / "torch of ones own").exists()
    assert state.is_ready(layout, own)


@pytest.mark.parametrize(
    ("choice", "printed", "message"),
    [
        ("cpu", "2.13.0 13.0", "is a GPU build"),
        ("cuda", "2.13.0+cpu no", "has no CUDA"),
        ("cpu", None, "cannot be imported: ImportError: broken"),
        ("none", None, "Install yours"),
    ],
)
def test_what_was_installed_is_looked_at(
    layout: Layout, choice: state.TorchChoice, printed: str | None, message: str
) -> None:
    layout.python.parent.mkdir(parents=True)
    failing = "echo 'ImportError: broken' >&2; exit 1"
    line = failing if printed is None else f"echo '{printed}'"
    layout.python.write_text(f"#!/bin/sh\n{line}\n")
    layout.python.chmod(0o755)
    with pytest.raises(SetupError, match=message):
        install.describe_torch(layout, choice)


# --- the command line, the lock, the signals ---------------------------------------------------


def test_the_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    assert state.read_wish([]) == ANYTHING
    monkeypatch.setenv("FLM_TORCH", " CUDA ")
    monkeypatch.setenv("FLM_PYTHON", "/usr/bin/python3")
    wish = state.read_wish(["--bench", "--test"])
    assert wish == Wish(frozenset({"bench", "test"}), "cuda", platform.python_version())
    monkeypatch.setenv("FLM_TORCH", "tpu")
    with pytest.raises(SetupError, match="FLM_TORCH=tpu is not one of cpu, cuda, none"):
        state.read_wish([])


def test_a_stamp_survives_the_disk(layout: Layout) -> None:
    layout.venv.mkdir()
    state.write_stamp(layout, "cpu", frozenset({"test", "bench"}), key="k")
    stamp = state.read_stamp(layout)
    assert stamp == Stamp("k", str(layout.root), str(None), "cpu", ("bench", "test"))


def test_the_second_of_two_waits(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    order: list[str] = []

    def second() -> None:
        with setup_env.locked(path):
            order.append("second")

    thread = threading.Thread(target=second)
    with setup_env.locked(path):
        thread.start()
        time.sleep(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_pip_is_kept_from_the_callers_habits(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_TARGET", "/somewhere")
    monkeypatch.setenv("PIP_USER", "1")
    source = "import os; print(os.environ.get('PIP_TARGET'), os.environ['PIP_USER'])"
    assert Tools(layout, None).start([sys.executable, "-c", source]).returncode == 0
    assert capfd.readouterr().err == "None 0\n"


INTERRUPTED = """
import signal, sys
from pathlib import Path
import setup_env
from setuplib.install import Tools
from setuplib.state import Layout
signal.signal(signal.SIGTERM, setup_env.on_terminate)
grandchild = "import os, sys, time; print(os.getpid(), file=sys.stderr); time.sleep(600)"
child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"
Tools(Layout(Path(".")), None).start([sys.executable, "-c", child])
"""


def test_an_interrupt_ends_the_command_and_its_children() -> None:
    """Else a pip that goes on would write into the next environment."""
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        cwd=ROOT / "scripts",
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        grandchild = psutil.Process(int(process.stderr.readline()))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) != 0
        psutil.wait_procs([grandchild], timeout=30)
        assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE


# --- the pins ----------------------------------------------------------------------------------


OWN_CHOICE = ("pip", "setuptools", "torch")
"""What a user may have brought in another version."""


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(pair) == 2 for pair in pairs)
    return {canonicalize_name(name): text for name, text in pairs}


def test_every_requirement_is_pinned_within_its_bounds() -> None:
    for text in install.requirements(Layout(ROOT), frozenset({"test", "bench"})):
        requirement = Requirement(text)
        pin = pins()[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pin), f"{text} is pinned to {pin}"


def test_the_pins_are_what_is_installed() -> None:
    wrong = []
    for name, pin in pins().items():
        try:
            installed = version(name)
        except PackageNotFoundError:
            continue  # an extra that is not installed here, or another platform's
        if installed.partition("+")[0] != pin and name not in OWN_CHOICE:
            wrong.append(f"{name}: {installed} is installed, {pin} is pinned")
    assert not wrong
