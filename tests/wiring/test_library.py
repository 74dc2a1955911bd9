"""The models a server lists: each opened once, and again when its files have changed."""

import os
from pathlib import Path

import pytest

from flm.config import ServeConfig
from flm.models.catalog import load_catalog
from flm.models.store import ModelStore
from flm.wiring import library as library_module
from flm.wiring.library import Library
from tests.support.app import install
from tests.support.tiny import tiny_folder


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the folders whose headers were read."""
    names: list[str] = []
    real = library_module.open_model

    def open_model(path: Path) -> object:
        names.append(path.name)
        return real(path)

    monkeypatch.setattr(library_module, "open_model", open_model)
    return names


def test_a_model_is_opened_again_only_when_its_files_changed(
    tmp_path: Path, opened: list[str]
) -> None:
    one, two = (
        install(tmp_path, f"test/{name}", tiny_folder(tmp_path / "new")) for name in ("one", "two")
    )
    library = Library(ServeConfig(model="test/one"), ModelStore(tmp_path, load_catalog()))
    first = library.installed()
    assert sorted(opened) == sorted([one.name, two.name])
    assert library.installed() == first
    assert len(opened) == 2
    os.utime(two / "generation_config.json", ns=(1, 1))
    assert library.installed() == first
    assert opened[2:] == [two.name]
    library.close()
