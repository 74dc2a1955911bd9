"""What an environment holds, what is wanted of it, and whether the two agree."""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

TorchChoice = Literal["cpu", "cuda", "none"]
TORCH_CHOICES: tuple[TorchChoice, ...] = ("cpu", "cuda", "none")
EXTRAS = ("bench", "test")

HELP = """
environment:
  FLM_TORCH=cpu   torch for the CPU (the default for a new .venv)
  FLM_TORCH=cuda  torch for NVIDIA GPUs, several gigabytes (Linux)
  FLM_TORCH=none  install no torch: the one of your own Python, or one that you put into .venv
  FLM_PYTHON      the Python to make .venv with (3.11 or newer)
An existing .venv keeps the torch that it was made with unless FLM_TORCH names another.
"""


class SetupError(Exception):
    """Something a person has to put right; the message says what."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a finished environment holds. ``key`` covers the files that decide its packages."""

    key: str
    root: str
    python: str
    torch: TorchChoice
    extras: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wish:
    """What this run is asked for; ``torch`` is None when any will do, ``python`` likewise."""

    extras: frozenset[str]
    torch: TorchChoice | None
    python: str | None


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything lies, given the checkout."""

    root: Path

    @property
    def venv(self) -> Path:
        """The environment."""
        return self.root / ".venv"

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        folder = "Scripts" if os.name == "nt" else "bin"
        return self.venv / folder / "python"

    @property
    def stamp(self) -> Path:
        """Written last: the environment is whole."""
        return self.venv / "setup-done.json"

    @property
    def marker(self) -> Path:
        """Written first: the environment is ours to replace."""
        return self.venv / "setup-began"

    @property
    def constraints(self) -> Path:
        """The pinned versions."""
        return self.root / "constraints.txt"

    @property
    def pyproject(self) -> Path:
        """The project's own requirements."""
        return self.root / "pyproject.toml"


def say(message: str) -> None:
    """One line for the person who waits."""
    print(f"setup: {message}", file=sys.stderr, flush=True)


# --- what is there, what is wanted -------------------------------------------------------------


def read_wish(arguments: list[str] | None = None) -> Wish:
    """The command line and the environment as one value."""
    parser = argparse.ArgumentParser(
        prog="scripts/setup",
        description="Make .venv and install the project into it. Running it again is free.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--test", action="store_true", help="also what scripts/test needs")
    parser.add_argument("--bench", action="store_true", help="also what scripts/bench needs")
    options = parser.parse_args(arguments)
    torch = os.environ.get("FLM_TORCH", "").strip().lower()
    if torch and torch not in TORCH_CHOICES:
        raise SetupError(f"FLM_TORCH={torch} is not one of {', '.join(TORCH_CHOICES)}.")
    return Wish(
        extras=frozenset(name for name in EXTRAS if getattr(options, name)),
        torch=torch or None,
        python=platform.python_version() if os.environ.get("FLM_PYTHON") else None,
    )


def content_key(layout: Layout) -> str:
    """A hash over the files that decide what is installed, our own source included."""
    digest = hashlib.sha256()
    sources = sorted(Path(__file__).parent.glob("*.py"))
    for path in (layout.pyproject, layout.constraints, *sources):
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def read_stamp(layout: Layout) -> Stamp | None:
    """The stamp, or None when there is none or it cannot be read."""
    try:
        fields = json.loads(layout.stamp.read_text("utf-8"))
        return Stamp(**{**fields, "extras": tuple(fields["extras"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def venv_version(layout: Layout) -> str | None:
    """The version of the environment's interpreter, or None when it does not run."""
    if Path(sys.prefix) == layout.venv:
        return platform.python_version()
    probe = "import platform; print(platform.python_version())"
    try:
        result = subprocess.run(
            [layout.python, "-I", "-c", probe], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def is_reusable(layout: Layout, wish: Wish, stamp: Stamp | None) -> bool:
    """True when the environment need not be made afresh (it may still lack packages)."""
    return (
        stamp is not None
        and stamp.root == str(layout.root)
        and stamp.python == venv_version(layout)
        and wish.python in (None, stamp.python)
        and wish.torch in (None, stamp.torch)
    )


def is_ready(layout: Layout, wish: Wish) -> bool:
    """True when nothing is left to do."""
    stamp = read_stamp(layout)
    return (
        stamp is not None
        and stamp.key == content_key(layout)
        and wish.extras <= set(stamp.extras)
        and (layout.python.parent / "flm").exists()
        and is_reusable(layout, wish, stamp)
    )


def write_stamp(layout: Layout, torch: TorchChoice, extras: frozenset[str], *, key: str) -> None:
    """Declare, in one atomic step, what the environment holds; an empty key: it lacks packages."""
    stamp = Stamp(
        key=key,
        root=str(layout.root),
        python=str(venv_version(layout)),
        torch=torch,
        extras=tuple(sorted(extras)),
    )
    draft = layout.stamp.with_suffix(".new")
    draft.write_text(json.dumps(asdict(stamp), indent=1) + "\n", "utf-8")
    draft.replace(layout.stamp)
