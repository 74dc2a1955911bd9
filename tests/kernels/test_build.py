import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flm.kernels import build as building
from flm.kernels.build import BuildError, build
from flm.kernels.library import Kernels
from flm.kernels.trial import problem_of


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    building.load_kernels.cache_clear()
    yield tmp_path / "cache/flm"
    building.load_kernels.cache_clear()


def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = tmp_path / "compiler"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(path))


def test_a_build_is_kept_for_the_next_start(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.environ.get("CXX", "c++")
    log = tmp_path / "log"
    compiler(tmp_path, monkeypatch, f'echo run "$1" >> {log}\nexec {real} "$@"')
    path = build()
    assert path.parent == cache
    assert problem_of(Kernels(path)) is None
    assert build() == path
    assert log.read_text().splitlines().count("run -O3") == 1


@pytest.mark.parametrize("kept", [0, 3])
def test_half_a_library_is_built_again(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    write = 'for a; do [ "$a" = -fopenmp ] || out=$a; done; [ "$1" = --version ] || echo lib > $out'
    compiler(tmp_path, monkeypatch, write)
    path = build()
    path.write_bytes(path.read_bytes()[:kept])
    assert build() == path
    assert path.read_text() == "lib\n"


def test_further_flags_make_another_library(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(
        tmp_path,
        monkeypatch,
        'all="$@"; while [ $# -gt 1 ]; do [ "$1" = -o ] && echo "$all" > "$2"; shift; done',
    )
    plain, other = build(), build("-DFLM_PROFILE")
    assert plain != other
    assert "-DFLM_PROFILE" not in plain.read_text()
    assert "-DFLM_PROFILE" in other.read_text()


def test_no_compiler_is_a_reason_not_an_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building.shutil, "which", lambda _: None)
    found = building.load_kernels()
    assert found.kernels is None
    assert found.problem is not None
    assert "install g++" in found.problem


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            'case "$1" in --version) ;; *) echo "x: error: no such thing" >&2; exit 1;; esac',
            "error",
        ),
        ("exit 3", "exit status 3"),
        (
            'for a; do out=$a; done; [ "$1" = --version ] || echo junk > "$out"',
            "cannot be loaded",
        ),
    ],
)
def test_a_broken_compiler_costs_speed_only(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    # The output of a real build is the last argument but for -fopenmp.
    compiler(tmp_path, monkeypatch, script.replace("out=$a;", '[ "$a" = -fopenmp ] || out=$a;'))
    found = building.load_kernels()
    assert found.kernels is None
    assert words in str(found.problem)


def test_a_compiler_that_is_no_program_is_a_reason(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "compiler"
    path.write_bytes(b"\x7fELF, but for another machine")
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    found = building.load_kernels()
    assert found.kernels is None
    assert "does not run" in str(found.problem)


def test_what_a_compiler_says_need_not_be_utf8(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(tmp_path, monkeypatch, "printf 'error: d\\351j\\340 vu' >&2; exit 1")
    assert "error: d�j� vu" in str(building.load_kernels().problem)


def test_no_home_is_a_reason(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert "no folder to keep" in str(building.load_kernels().problem)


def test_a_folder_that_cannot_be_looked_into_is_a_reason(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_: Path) -> bool:
        raise PermissionError("not yours")

    monkeypatch.setattr(Path, "exists", denied)
    assert "not yours" in str(building.load_kernels().problem)


def test_a_folder_that_cannot_be_written_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(BuildError, match="cannot be kept"):
        build()


def test_the_trial_finds_wrong_products() -> None:
    class Wrong:
        def linear(self, packed: Any, x: Any, _threads: int) -> Any:
            return np.zeros((len(x), packed.num_out), dtype=np.float32)

    wrong: Any = Wrong()
    assert "wrong products of q4" in str(problem_of(wrong))
