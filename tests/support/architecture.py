"""Reads the imports of a package from its source and holds them against a table of doors.

Everything counts as an import: at the top, inside a function, under ``TYPE_CHECKING``, relative,
and ``importlib.import_module`` with a constant. Nothing is executed.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ANY = "*"
DYNAMIC_IMPORTS = {"import_module", "__import__"}


@dataclass(frozen=True, slots=True)
class Doors:
    """Who may import what, in names below the package (``kvcache.view``).

    ``leaves`` may be imported by everyone and import only each other. ``rooms`` maps a room to
    the modules or packages that it may import beside the leaves and itself; ``ANY`` opens all
    doors. ``private`` maps a module that only a few may import to those few. ``guarded`` maps an
    outside package to the only modules or packages that may import it.
    """

    leaves: frozenset[str]
    rooms: Mapping[str, tuple[str, ...]]
    private: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    guarded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name, as far as it can be a module: ``flm.kvcache.view`` or ``torch.nn``."""

    target: str
    line: int


@dataclass(frozen=True)
class Module:
    """One source file. ``name`` is its dotted name with the package in front."""

    name: str
    path: Path
    is_package: bool
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed source."""
        return ast.parse(self.text, str(self.path))

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """Everything it imports. ``from a import b`` gives ``a.b``: b may be a module."""
        return tuple(self._find_imports())

    def _find_imports(self) -> Iterator[Import]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (Import(alias.name, node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                yield from (Import(f"{base}.{alias.name}", node.lineno) for alias in node.names)
            elif isinstance(node, ast.Call) and _called_name(node) in DYNAMIC_IMPORTS:
                yield Import(_constant_name(node), node.lineno)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if node.level == 0:
            return node.module or ""
        parts = self.name.split(".")
        keep = len(parts) - node.level + (1 if self.is_package else 0)
        return ".".join([*parts[:keep], *([node.module] if node.module else [])])


def _called_name(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _constant_name(node: ast.Call) -> str:
    first = node.args[0] if node.args else None
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value
    return "<computed>"


def read_modules(folder: Path, package: str) -> dict[str, Module]:
    """Every module below ``folder``, by dotted name; ``package`` is the name of the folder."""
    modules = {}
    for path in sorted(folder.rglob("*.py")):
        parts = list(path.relative_to(folder).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        name = ".".join([package, *(parts[:-1] if is_package else parts)])
        modules[name] = Module(name, path, is_package, path.read_text("utf-8"))
    return modules


def _is_within(name: str, room: str) -> bool:
    return name == room or name.startswith(room + ".")


def _is_within_any(name: str, rooms: Iterable[str]) -> bool:
    return any(room == ANY or _is_within(name, room) for room in rooms)


# --- the rules; each returns its complaints ----------------------------------------------------


def closed_doors(modules: Mapping[str, Module], package: str, doors: Doors) -> list[str]:
    """Imports of our own modules that the table does not allow."""
    complaints = []
    for module in modules.values():
        importer = module.name.removeprefix(package).lstrip(".")
        if not importer:
            allowed: tuple[str, ...] | None = ("version",)
        else:
            allowed = _allowed(importer, doors)
        if allowed is None:
            complaints.append(f"{module.name}: belongs to no room of the table")
            continue
        for found in module.imports:
            if found.target == "<computed>":
                complaints.append(f"{module.path}:{found.line}: imports a computed name")
            elif _is_within(found.target, package):
                target = found.target.removeprefix(package).lstrip(".")
                if not _may_import(importer, target, allowed, doors):
                    complaints.append(f"{module.path}:{found.line}: {importer} -> {target}")
    return complaints


def _allowed(importer: str, doors: Doors) -> tuple[str, ...] | None:
    if _is_within_any(importer, doors.leaves):
        return tuple(doors.leaves)
    for room, targets in doors.rooms.items():
        if _is_within(importer, room):
            return (room, *doors.leaves, *targets)
    return None


def _may_import(importer: str, target: str, allowed: tuple[str, ...], doors: Doors) -> bool:
    for private, users in doors.private.items():
        if _is_within(target, private) and not _is_within_any(importer, (private, *users)):
            return False
    return _is_within_any(target, allowed)


def guarded_imports(modules: Mapping[str, Module], package: str, doors: Doors) -> list[str]:
    """Imports of guarded outside packages by modules that may not."""
    complaints = []
    for module in modules.values():
        importer = module.name.removeprefix(package).lstrip(".")
        for found in module.imports:
            for outside, users in doors.guarded.items():
                if _is_within(found.target, outside) and not _is_within_any(importer, users):
                    complaints.append(f"{module.path}:{found.line}: {importer} -> {outside}")
    return complaints


def cycles(modules: Mapping[str, Module]) -> list[str]:
    """The first cycle of imports found, as one complaint."""
    graph = {
        name: {
            target
            for found in module.imports
            if (target := _module_of(found.target, modules)) is not None and target != name
        }
        for name, module in modules.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return ["cycle of imports: " + " <- ".join(error.args[1])]
    return []


def _module_of(target: str, modules: Mapping[str, Module]) -> str | None:
    if target in modules:
        return target
    parent = target.rpartition(".")[0]
    return parent if parent in modules else None


def global_statements(modules: Mapping[str, Module]) -> list[str]:
    """Every ``global``."""
    return [
        f"{module.path}:{node.lineno}: global {', '.join(node.names)}"
        for module in modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Global)
    ]


def long_functions(modules: Mapping[str, Module], max_lines: int) -> list[str]:
    """Functions with more lines than ``max_lines``, decorators not counted."""
    return [
        f"{module.path}:{node.lineno}: {node.name} has {length} lines"
        for module in modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > max_lines
    ]


def long_files(modules: Mapping[str, Module], max_lines: int) -> list[str]:
    """Files with more lines than ``max_lines``."""
    return [
        f"{module.path}: {length} lines"
        for module in modules.values()
        if (length := len(module.text.splitlines())) > max_lines
    ]


def bad_names(modules: Mapping[str, Module], forbidden: frozenset[str]) -> list[str]:
    """Modules whose name says nothing."""
    return [name for name in modules if name.rpartition(".")[2] in forbidden]


def reachable(modules: Mapping[str, Module], start: str) -> set[str]:
    """Outside packages that importing ``start`` may bring in, through our own modules too."""
    seen: set[str] = set()
    outside: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        # Importing a module runs the packages above it first.
        parent = name.rpartition(".")[0]
        waiting += [parent] if parent in modules else []
        for found in modules[name].imports:
            inside = _module_of(found.target, modules)
            if inside is None:
                outside.add(found.target.partition(".")[0])
            else:
                waiting.append(inside)
    return outside
