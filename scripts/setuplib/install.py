"""Making the environment: venv, torch, the project's requirements, the project itself."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

from setuplib.state import (
    Layout,
    SetupError,
    TorchChoice,
    Wish,
    content_key,
    is_reusable,
    read_stamp,
    say,
    venv_version,
    write_stamp,
)

CPU_INDEX = "https://download.pytorch.org/whl/cpu"


@dataclass(frozen=True, slots=True)
class Tools:
    """Runs the environment's Python and pip, with the caller's private pip habits kept out.

    Every process inherits ``lock_fd``: should this program be killed, a second run waits for
    what it left at work. Each has a process group of its own, ended whole when we are interrupted.
    """

    layout: Layout
    lock_fd: int | None

    def start(self, command: Sequence[str], *, stderr: int | None = None) -> CompletedProcess[str]:
        """Run a command to its end; its stdout goes to our stderr."""
        with subprocess.Popen(
            command,
            env=self._environment(),
            stdout=sys.stderr,
            stderr=stderr,
            text=True,
            pass_fds=() if self.lock_fd is None else (self.lock_fd,),
            start_new_session=True,
        ) as process:
            try:
                _, said = process.communicate()
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        return CompletedProcess(command, process.returncode, stderr=said)

    def _environment(self) -> dict[str, str]:
        private = {"PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_VIRTUALENV", "PIP_NO_DEPS"}
        kept = {name: value for name, value in os.environ.items() if name not in private}
        return {**kept, "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def try_pip(self, *arguments: str) -> str | None:
        """Run pip; None when it worked, else what it said on stderr."""
        command = [str(self.layout.python), "-m", "pip", "--no-input", *arguments]
        result = self.start(command, stderr=subprocess.PIPE)
        return None if result.returncode == 0 else result.stderr

    def pip(self, *arguments: str) -> None:
        """Run pip.

        Raises:
            SetupError: it failed; its own words are in the message.
        """
        complaint = self.try_pip(*arguments)
        if complaint is not None:
            raise SetupError(
                f"pip {' '.join(arguments)} failed:\n{complaint.rstrip()}\n"
                "Check the network and the disk, then run this again."
            )


def pinned_version(layout: Layout, name: str) -> str:
    """The version of ``name`` in constraints.txt."""
    for line in layout.constraints.read_text("utf-8").splitlines():
        if line.startswith(f"{name}=="):
            return line.removeprefix(f"{name}==").strip()
    raise SetupError(f"constraints.txt pins no {name}; restore the file.")


def requirements(layout: Layout, extras: frozenset[str]) -> list[str]:
    """The project's dependencies and those of ``extras``, as pyproject.toml lists them."""
    project = tomllib.loads(layout.pyproject.read_text("utf-8"))["project"]
    wanted: list[str] = list(project["dependencies"])
    for extra in sorted(extras):
        wanted += project["optional-dependencies"][extra]
    return list(dict.fromkeys(wanted))


def make_venv(tools: Tools, torch: TorchChoice) -> None:
    """Replace whatever lies at ``.venv`` by an environment with nothing but pip."""
    layout = tools.layout
    discard(layout)
    layout.venv.mkdir()
    layout.marker.write_text("made by scripts/setup; delete the whole folder at any time\n")
    base = getattr(sys, "_base_executable", sys.executable)
    site = ["--system-site-packages"] if torch == "none" else []
    for command in (
        [base, "-m", "venv", "--without-pip", *site, str(layout.venv)],
        [str(layout.python), "-m", "ensurepip", "--upgrade", "--default-pip"],
    ):
        if tools.start(command).returncode != 0:
            raise SetupError(f"{' '.join(command)} failed; its words are above.")


def discard(layout: Layout) -> None:
    """Delete an environment of ours; move one that we did not make out of the way."""
    for leftover in layout.root.glob(".venv.discarded-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    if layout.venv.is_symlink() or not layout.venv.exists():
        layout.venv.unlink(missing_ok=True)
        return
    # Renamed first: a deletion that is cut short must not look like an environment.
    is_ours = layout.marker.exists()
    aside = layout.root / f".venv.{'discarded' if is_ours else 'replaced'}-{os.getpid()}"
    layout.venv.rename(aside)
    if is_ours:
        shutil.rmtree(aside)
    else:
        say(f"the .venv that was here was not made by this script; it is now {aside.name}")


def install_torch(tools: Tools, choice: TorchChoice) -> None:
    """Install the chosen build. Its own dependencies come later, with the project's."""
    version = pinned_version(tools.layout, "torch")
    if choice == "cuda":
        # Three equals signs: 2.13.0+cpu would satisfy two.
        tools.pip("install", "--no-deps", f"torch==={version}")
    elif sys.platform == "darwin":
        tools.pip("install", "--no-deps", f"torch=={version}")
    else:
        install_cpu_torch(tools, f"torch=={version}+cpu")


def install_cpu_torch(tools: Tools, requirement: str) -> None:
    """On Linux the index's plain torch is the CUDA build, so the CPU one is asked for by name."""
    complaint = tools.try_pip("install", "--no-deps", requirement)
    if complaint is None:
        return
    # The second is what pip says when a constraint of the user's names torch too.
    if not any(
        words in complaint for words in ("No matching distribution", "ResolutionImpossible")
    ):
        raise SetupError(f"pip install {requirement} failed:\n{complaint.rstrip()}")
    say(f"{requirement} is not on the configured indexes; trying {CPU_INDEX}")
    tools.pip("install", "--no-deps", "--index-url", CPU_INDEX, requirement)


def constraints_for(layout: Layout, choice: TorchChoice) -> Path:
    """constraints.txt, without torch where the user brings another version."""
    if choice != "none":
        return layout.constraints
    lines = layout.constraints.read_text("utf-8").splitlines()
    path = layout.venv / "constraints-without-torch.txt"
    path.write_text("\n".join(line for line in lines if not line.startswith("torch==")) + "\n")
    return path


def describe_torch(layout: Layout, choice: TorchChoice) -> str:
    """The installed torch in words.

    Raises:
        SetupError: it is missing, broken, or not the build that was chosen.
    """
    probe = (
        "import torch; print(torch.__version__, torch.version.cuda or torch.version.hip or 'no')"
    )
    result = subprocess.run(
        [layout.python, "-I", "-c", probe], capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or ["no message"])[-1]
        if choice == "none":
            raise SetupError(
                f"FLM_TORCH=none, and torch cannot be imported ({last}). Install yours with "
                f"'{layout.python}' -m pip install ..., then run this again."
            )
        raise SetupError(f"torch was installed but cannot be imported: {last}")
    version, gpu = result.stdout.split()
    if choice == "cpu" and gpu != "no":
        raise SetupError(
            f"torch {version} is a GPU build (CUDA or ROCm {gpu}), but the CPU one was asked "
            "for. Delete .venv and run this again, or choose FLM_TORCH=cuda."
        )
    if choice == "cuda" and gpu == "no":
        raise SetupError(f"torch {version} has no CUDA, but FLM_TORCH=cuda asked for it.")
    return f"torch {version}" if gpu == "no" else f"torch {version} (GPU runtime {gpu})"


def require_own_torch(layout: Layout, extras: frozenset[str]) -> None:
    """Stop before pip chooses and fetches a torch by itself."""
    # The stamp says "not whole, yet not to be thrown away": the user may have put torch into it.
    write_stamp(layout, "none", extras, key="")
    describe_torch(layout, "none")


def make(layout: Layout, wish: Wish, lock_fd: int | None) -> None:
    """Bring the environment to what is wished; the stamp comes last."""
    stamp = read_stamp(layout)
    reuse = is_reusable(layout, wish, stamp)
    kept = frozenset(stamp.extras) if reuse and stamp is not None else frozenset()
    extras = kept | wish.extras
    torch = wish.torch
    if torch is None:
        torch = stamp.torch if stamp is not None else "cpu"
    layout.stamp.unlink(missing_ok=True)
    tools = Tools(layout, lock_fd)
    if not reuse:
        say(f"making {layout.venv} (a first run takes a few minutes)")
        make_venv(tools, torch)
    if torch == "none":
        require_own_torch(layout, kept)
    else:
        say(f"installing torch ({torch})")
        install_torch(tools, torch)
    say("installing the project" + (f" with {', '.join(sorted(extras))}" if extras else ""))
    pins = str(constraints_for(layout, torch))
    tools.pip("install", "-q", "-c", pins, "pip", "setuptools", *requirements(layout, extras))
    tools.pip("install", "-q", "--no-deps", "--no-build-isolation", "-e", str(layout.root))
    # Built now, the first start does not have to; without a compiler plain torch serves.
    tools.start([str(layout.python), "-m", "flm.kernels.build"])
    torch_text = describe_torch(layout, torch)
    write_stamp(layout, torch, extras, key=content_key(layout))
    say(f"ready: Python {venv_version(layout)}, {torch_text}")
