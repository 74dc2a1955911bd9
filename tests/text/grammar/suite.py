"""The official test suite of JSON Schema, as the source package of ``jsonschema`` carries it."""

import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSION = "4.26.0"
_TESTS = f"jsonschema-{VERSION}/json/tests/draft2020-12/"


@dataclass(frozen=True, slots=True)
class Case:
    """A schema with instances; ``file`` is relative to the draft's folder."""

    file: str
    description: str
    schema: Any
    tests: tuple[dict[str, Any], ...]


def cases() -> Iterator[Case]:
    """Every schema of the draft, optional parts included. Downloads it the first time."""
    with tarfile.open(_archive()) as archive:
        for member in sorted(archive.getmembers(), key=lambda m: m.name):
            if member.name.startswith(_TESTS) and member.name.endswith(".json"):
                file = archive.extractfile(member)
                assert file is not None
                for group in json.load(file):
                    yield Case(
                        member.name.removeprefix(_TESTS),
                        group["description"],
                        group["schema"],
                        tuple(group["tests"]),
                    )


def _archive() -> Path:
    folder = Path(tempfile.gettempdir()) / "flm-tests" / "jsonschema"
    path = folder / f"jsonschema-{VERSION}.tar.gz"
    if not path.exists():
        with tempfile.TemporaryDirectory() as fresh:
            options = ["--quiet", "--no-deps", "--no-binary", ":all:", "--dest", fresh]
            command = [sys.executable, "-m", "pip", "download", *options, f"jsonschema=={VERSION}"]
            subprocess.run(command, check=True, timeout=240)
            folder.mkdir(parents=True, exist_ok=True)
            (Path(fresh) / path.name).replace(path)
    return path
