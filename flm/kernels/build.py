"""Builds the native kernels with the machine's own C++ compiler, once for each source and CPU.

``python -m flm.kernels.build`` builds ahead of the first start. Without a compiler nothing is
lost but speed: ``load_kernels`` says why there are none, and plain torch serves.
"""

import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from flm.kernels.library import Kernels
from flm.kernels.trial import problem_of

SOURCE: Final = Path(__file__).parent / "native"
_TIMEOUT_S: Final = 300.0
# -ffp-contract=off: only where the source says so are a product and a sum rounded once, so every
# path through the kernels rounds alike.
_FLAGS: Final = ("-O3", "-std=c++17", "-ffp-contract=off", "-fPIC", "-shared", "-fno-math-errno")


class BuildError(Exception):
    """The kernels cannot be built or do not work here; the message says why."""


@dataclass(frozen=True, slots=True)
class Found:
    """The kernels, or the reason why there are none."""

    kernels: Kernels | None
    problem: str | None = None


@functools.cache
def load_kernels() -> Found:
    """The kernels for this machine, built now if they have not been."""
    try:
        return Found(_checked(build()))
    except BuildError as error:
        return Found(None, str(error))


def build(*flags: str) -> Path:
    """The library, built if it is not there yet; with further flags of the compiler if given.

    Raises:
        BuildError: there is no compiler, or it fails.
    """
    compiler = _compiler()
    target = _cache_dir() / f"kernels-{_fingerprint(compiler, flags)}.so"
    try:
        if _is_whole(target):
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_suffix(".lock"), timeout=_TIMEOUT_S):
            if not _is_whole(target):
                _compile(compiler, target, flags)
    except (OSError, Timeout) as error:
        raise BuildError(f"the kernels cannot be kept in {target.parent}: {error}") from error
    return target


def _is_whole(target: Path) -> bool:
    """True if the library is there as it was built. Loading the half of one, as a full disk or a
    lost machine leaves it, would end the process."""
    summed = _sum_path(target)
    return target.exists() and summed.exists() and summed.read_text() == _sum_of(target)


def _sum_path(target: Path) -> Path:
    return target.with_suffix(".sha256")


def _sum_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _checked(path: Path) -> Kernels:
    try:
        kernels = Kernels(path)
    except OSError as error:
        raise BuildError(f"{path} cannot be loaded: {error}") from error
    problem = problem_of(kernels)
    if problem is not None:
        raise BuildError(f"{path} {problem}")
    return kernels


def _compiler() -> str:
    for name in (os.environ.get("CXX", ""), "c++", "g++", "clang++"):
        found = shutil.which(name) if name else None
        if found is not None:
            return found
    raise BuildError("no C++ compiler was found (install g++ or clang++, or set CXX)")


def _cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    except RuntimeError as error:
        raise BuildError(f"there is no folder to keep the kernels in: {error}") from error
    return root / "flm"


def _fingerprint(compiler: str, flags: Sequence[str]) -> str:
    """Changes with the source, the compiler, the flags and what the CPU can do."""
    digest = hashlib.sha256()
    for path in sorted(SOURCE.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    digest.update(compiler.encode() + _version(compiler))
    digest.update(" ".join((*_FLAGS, *flags, *_cpu_flags())).encode())
    digest.update(_cpu().encode())
    return digest.hexdigest()[:20]


def _version(compiler: str) -> bytes:
    try:
        asked = [compiler, "--version"]
        return subprocess.run(asked, capture_output=True, check=False, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{compiler} does not run: {error}") from error


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.machine() + platform.processor()
    # The first processor's; "flags" on x86, "Features" on ARM.
    known = ("model name", "flags", "Features", "CPU part")
    return platform.machine() + "".join(
        next((line for line in lines if line.startswith(name)), "") for name in known
    )


def _cpu_flags() -> tuple[str, ...]:
    is_arm = platform.machine().lower() in ("aarch64", "arm64")
    return ("-mcpu=native",) if is_arm else ("-march=native",)


def _compile(compiler: str, target: Path, flags: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        out = Path(folder) / target.name
        source = str(SOURCE / "forward.cpp")
        command = [compiler, *_FLAGS, *flags, *_cpu_flags(), source, "-o", str(out)]
        # Apple's compiler has no OpenMP: threads of our own there.
        first = _run([*command, "-fopenmp"])
        if first is not None:
            second = _run([*command, "-pthread"])
            if second is not None:
                raise BuildError(f"{compiler} failed: {first}")
        _sum_path(target).write_text(_sum_of(out))
        out.replace(target)


def _run(command: list[str]) -> str | None:
    """None when it worked, else what the compiler said."""
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, timeout=_TIMEOUT_S, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return None if done.returncode == 0 else next((x for x in lines if "error" in x), lines[0])


def main() -> int:
    """Build, check and say what came of it; never fails, as the kernels are not needed."""
    found = load_kernels()
    if found.problem is None:
        sys.stdout.write("kernels: ready\n")
    else:
        sys.stdout.write(f"kernels: none, plain torch will serve: {found.problem}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
