"""The doors between the rooms, and the house rules that a machine can check."""

import textwrap
from pathlib import Path

import pytest

from tests.support.architecture import (
    ANY,
    Doors,
    Module,
    bad_names,
    closed_doors,
    cycles,
    global_statements,
    guarded_imports,
    long_files,
    long_functions,
    reachable,
    read_modules,
)

ROOT = Path(__file__).parent.parent
MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 400
EMPTY_NAMES = frozenset({"util", "utils", "helpers", "misc"})

TORCH_ROOMS = (
    "kernels",
    "models",
    "kvcache.pool",
    "kvcache.view",
    "prefill.runner",
    "sampling",
    "engine.decode",
    "engine.graphs",
    "engine.runner",
    "engine.sampler",
    "engine.engine",
    "engine.worker",
    "wiring",
)

DOORS = Doors(
    leaves=frozenset({"errors", "types", "adaptation", "config", "log", "sticky", "version"}),
    rooms={
        "text": (),
        "kvcache": (),
        "kernels": (),
        "sampling": ("kernels",),
        "models": ("kvcache.view", "kvcache.layout", "kernels"),
        "prefill": ("models", "kvcache"),
        "engine": ("prefill", "models", "kvcache", "sampling"),
        "service": ("text", "engine.protocol"),
        "server": ("service",),
        "bench": (),
        "router": (),
        "wiring": (ANY,),
        "cli": (ANY,),
        "__main__": (ANY,),
    },
    private={
        "wiring": ("cli", "__main__"),
        "cli": ("__main__",),
        "router": ("cli",),
        "bench": ("cli",),
    },
    guarded={"torch": TORCH_ROOMS, "safetensors.torch": TORCH_ROOMS, "transformers": TORCH_ROOMS},
)


@pytest.fixture(scope="module")
def flm() -> dict[str, Module]:
    return read_modules(ROOT / "flm", "flm")


@pytest.fixture(scope="module")
def everything(flm: dict[str, Module]) -> dict[str, Module]:
    scripts = read_modules(ROOT / "scripts", "scripts")
    tests = read_modules(ROOT / "tests", "tests")
    return flm | scripts | tests


def complain(complaints: list[str]) -> None:
    assert not complaints, "\n" + "\n".join(complaints)


# --- the project -------------------------------------------------------------------------------


def test_the_reader_sees_the_project(flm: dict[str, Module]) -> None:
    targets = {found.target for found in flm["flm.engine.protocol"].imports}
    assert "flm.types.SamplingParams" in targets


def test_every_import_goes_through_a_door(flm: dict[str, Module]) -> None:
    complain(closed_doors(flm, "flm", DOORS))


def test_torch_stays_where_tensors_are(flm: dict[str, Module]) -> None:
    complain(guarded_imports(flm, "flm", DOORS))


@pytest.mark.parametrize("room", ["server", "service", "text"])
def test_the_road_to_the_engine_is_free_of_torch(flm: dict[str, Module], room: str) -> None:
    names = [name for name in flm if name == f"flm.{room}" or name.startswith(f"flm.{room}.")]
    assert names
    complain([f"{name} brings torch in" for name in names if "torch" in reachable(flm, name)])


def test_the_router_is_an_island(flm: dict[str, Module]) -> None:
    modules = [module for name, module in flm.items() if name.startswith("flm.router")]
    assert len(modules) > 20
    ours = {found.target for module in modules for found in module.imports}
    own = ("flm.router.", "flm.adaptation.")
    complain([name for name in ours if name.startswith("flm") and not name.startswith(own)])


def test_no_import_cycle(flm: dict[str, Module]) -> None:
    complain(cycles(flm))


def test_no_global_statement(everything: dict[str, Module]) -> None:
    complain(global_statements(everything))


def test_functions_are_short(everything: dict[str, Module]) -> None:
    complain(long_functions(everything, MAX_FUNCTION_LINES))


def test_files_are_short(everything: dict[str, Module]) -> None:
    complain(long_files(everything, MAX_FILE_LINES))


def test_names_say_something(everything: dict[str, Module]) -> None:
    complain(bad_names(everything, EMPTY_NAMES))


# --- the checker itself can fail ---------------------------------------------------------------


def package(tmp_path: Path, **sources: str) -> dict[str, Module]:
    """A package ``app``; ``a__b="..."`` writes app/a/b.py, ``a____init__`` its __init__."""
    for name, text in sources.items():
        path = tmp_path / "app" / Path(*name.split("__", 1)).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return read_modules(tmp_path / "app", "app")


TWO_ROOMS = Doors(
    leaves=frozenset({"leaf", "twig"}),
    rooms={"cellar": (), "kitchen": ("cellar.shelf",), "hall": (ANY,)},
    private={"hall": ()},
    guarded={"torch": ("cellar.shelf",)},
)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("cellar__shelf", "import app.kitchen"),
        ("cellar__shelf", "import app.kitchen.stove as stove"),
        ("cellar__shelf", "from app import kitchen"),
        ("cellar__shelf", "from .. import kitchen"),
        ("cellar__shelf", "from ..kitchen.stove import fire"),
        ("cellar____init__", "from ..kitchen import fire"),
        ("cellar__shelf", "def late():\n    from app.kitchen import stove"),
        ("cellar__shelf", "if TYPE_CHECKING:\n    from app.kitchen import Stove"),
        ("cellar__shelf", "try:\n    import app.kitchen\nexcept ImportError: pass"),
        ("cellar__shelf", "import importlib\nimportlib.import_module('app.kitchen')"),
        ("cellar__shelf", "__import__('app.kitchen')"),
        ("cellar__shelf", "importlib.import_module(name)"),
        ("kitchen__stove", "from app.cellar import wine"),
        ("kitchen__stove", "from app.cellar.wine import red"),
        ("kitchen__stove", "from app.cellar.shelf_of_others import jam"),
        ("kitchen__stove", "import app.hall"),
        ("leaf", "from app.cellar import shelf"),
        ("attic__box", "import json"),
    ],
)
def test_a_closed_door_is_found(tmp_path: Path, name: str, source: str) -> None:
    assert len(closed_doors(package(tmp_path, **{name: source}), "app", TWO_ROOMS)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("cellar__shelf", "from app.leaf import green\nimport json, application"),
        ("cellar__shelf", "from . import wine\nfrom app.cellar.wine import red"),
        ("kitchen__stove", "from app.cellar.shelf import jam\nfrom app.cellar import shelf"),
        ("hall", "from app.cellar import wine\nimport app.kitchen"),
        ("leaf", "from app.twig import small"),
    ],
)
def test_an_open_door_is_not(tmp_path: Path, name: str, source: str) -> None:
    assert closed_doors(package(tmp_path, **{name: source}), "app", TWO_ROOMS) == []


@pytest.mark.parametrize(
    "source", ["import torch", "from torch.nn import functional", "def f():\n    import torch.nn"]
)
def test_a_guarded_import_is_found(tmp_path: Path, source: str) -> None:
    modules = package(tmp_path, kitchen__stove=source, cellar__shelf=source)
    assert len(guarded_imports(modules, "app", TWO_ROOMS)) == 1


def test_a_name_that_begins_like_a_guarded_one_is_free(tmp_path: Path) -> None:
    assert not guarded_imports(package(tmp_path, leaf="import torchless"), "app", TWO_ROOMS)


def test_a_road_to_torch_is_found(tmp_path: Path) -> None:
    modules = package(
        tmp_path,
        a="from app.b import x",
        b="from app.c.d import y",
        c__d="",
        c____init__="import torch",
    )
    assert "torch" in reachable(modules, "app.a")


@pytest.mark.parametrize(
    "sources",
    [
        {"a": "import app.b", "b": "import app.c", "c": "from app.a import x"},
        {"a": "from app import b", "b": "if TYPE_CHECKING:\n    from app.a import A"},
        {"r____init__": "from app.r.x import f", "r__x": "from app.r import f"},
    ],
)
def test_a_cycle_is_found(tmp_path: Path, sources: dict[str, str]) -> None:
    assert len(cycles(package(tmp_path, **sources))) == 1


def test_a_package_that_gathers_its_modules_is_no_cycle(tmp_path: Path) -> None:
    modules = package(
        tmp_path, r____init__="from app.r.x import f", r__x="from app.r.y import g", r__y="g = 1"
    )
    assert cycles(modules) == []


def test_house_rules_can_fail(tmp_path: Path) -> None:
    body = "def long():\n" + "    x = 1\n" * 5
    modules = package(tmp_path, utils="n = 0\ndef bump():\n    global n\n    n += 1\n", b=body)
    assert len(global_statements(modules)) == 1
    assert len(long_functions(modules, 5)) == 1
    assert len(long_functions(modules, 6)) == 0
    assert len(long_files(modules, 5)) == 1
    assert bad_names(modules, EMPTY_NAMES) == ["app.utils"]
