"""The command line as a user meets it: one store, one fake index, one fake hub."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flm.cli.main import app
from tests.support.store import TinyStore

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def invoke(*args: str) -> Outcome:
    """Run a command in this process."""
    result = CliRunner().invoke(app, list(args), prog_name="flm")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)


def spawn(*args: str, stdin: str = "", cwd: Path = ROOT, **env: str) -> Outcome:
    """Run a command as its own process."""
    result = subprocess.run(
        [sys.executable, "-m", "flm.cli.main", *args],
        input=stdin,
        capture_output=True,
        text=True,
        errors="replace",
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        timeout=240,
        check=False,
    )
    return Outcome(result.returncode, result.stdout, result.stderr)


@pytest.fixture(autouse=True)
def models(tmp_path, monkeypatch):
    """An empty folder for models."""
    folder = tmp_path / "models"
    monkeypatch.setenv("FLM_MODEL_PATH", str(folder))
    return folder


@pytest.fixture
def tiny(models, monkeypatch):
    """A store of tiny models in place of the user's."""
    tiny = TinyStore(models)
    monkeypatch.setattr("flm.models.store.open_store", lambda: tiny.store)
    return tiny
