"""An environment for each judge. Their packages contradict each other, and none may touch ours."""

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

INSTALL_TIMEOUT_S = 900.0
# A caller's habits must not lead an install elsewhere.
_PRIVATE = ("PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_REQUIRE_VIRTUALENV", "PIP_NO_DEPS")


class UnavailableError(Exception):
    """A judge's packages cannot be had here; the message says why."""


@dataclass(frozen=True, slots=True)
class Judge:
    """A script and the packages that it needs."""

    name: str
    script: Path
    requirements: Path
    venv: Path

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        folder = "Scripts" if os.name == "nt" else "bin"
        return self.venv / folder / "python"

    @property
    def stamp(self) -> Path:
        """Written last: the environment holds what it says."""
        return self.venv / "installed.txt"

    @property
    def wanted(self) -> str:
        """What the stamp of a finished environment says."""
        return f"# Python {platform.python_version()}\n{self.requirements.read_text('utf-8')}"


def judges_in(root: Path) -> list[Judge]:
    """Every judge of a checkout: a script is one if a file of requirements has its name."""
    folder = root / "scripts" / "judges"
    return [
        Judge(
            name=path.stem,
            script=folder / f"{path.stem}.py",
            requirements=path,
            venv=root / ".venv-judges" / path.stem,
        )
        for path in sorted((folder / "requirements").glob("*.txt"))
    ]


def ensure(judge: Judge) -> None:
    """Make the environment of ``judge`` unless it is there already.

    Raises:
        UnavailableError: it cannot be made; nothing is left of it.
    """
    if judge.stamp.exists() and judge.stamp.read_text("utf-8") == judge.wanted:
        return
    shutil.rmtree(judge.venv, ignore_errors=True)
    # Our pip works on its interpreter: to give each environment one of its own takes seconds.
    pip = [sys.executable, "-m", "pip", "--python", str(judge.python), "--no-input"]
    try:
        _run([sys.executable, "-m", "venv", "--without-pip", str(judge.venv)])
        _run([*pip, "--disable-pip-version-check", "install", "-q", "-r", str(judge.requirements)])
        judge.stamp.write_text(judge.wanted, "utf-8")
    except UnavailableError:
        shutil.rmtree(judge.venv, ignore_errors=True)
        raise


def _run(command: list[str]) -> None:
    env = {name: value for name, value in os.environ.items() if name not in _PRIVATE}
    try:
        result = subprocess.run(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(str(error)) from error
    if result.returncode != 0:
        said = [line for line in result.stderr.splitlines() if line.startswith("ERROR:")]
        told = said[0] if said else (result.stderr or result.stdout).strip()[-300:]
        raise UnavailableError(told)
