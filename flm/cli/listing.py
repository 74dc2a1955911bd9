"""``flm list``."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flm.cli.console import say, say_json, say_table, size_text
from flm.cli.options import json_flag
from flm.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from flm.models.catalog import CatalogEntry
    from flm.models.store import InstalledModel, ModelStore

FILTERS = ("all", "installed", "not-installed")


@dataclass(frozen=True, slots=True)
class _Row:
    """A model that the catalogue knows, or that is installed, or both."""

    name: str
    entry: "CatalogEntry | None"
    installed: "InstalledModel | None"

    @property
    def is_installed(self) -> bool:
        return self.installed is not None and self.installed.problem is None

    @property
    def state(self) -> str:
        if self.installed is None:
            return "not downloaded"
        return "ready" if self.installed.problem is None else "damaged"

    @property
    def size(self) -> str:
        if self.installed is not None:
            return size_text(self.installed.manifest.size)
        return f"~{size_text(self.entry.footprint_gb * 1e9)}" if self.entry is not None else "?"

    def to_dict(self) -> dict[str, Any]:
        known = self.entry.to_dict() if self.entry is not None else {}
        found = self.installed
        return {
            **known,
            "name": self.name,
            "model": self.name,
            "installed": self.is_installed,
            "path": str(found.path) if found is not None else None,
            "size": found.manifest.size if found is not None else None,
            "problem": found.problem if found is not None else None,
        }


def list_models(
    filter_by: Annotated[
        str, typer.Option("--filter", help="all, installed or not-installed.")
    ] = "all",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print names only.")] = False,
    as_json: Annotated[bool, json_flag()] = False,
) -> None:
    """List the models of the catalogue and those that are installed."""
    if filter_by not in FILTERS:
        raise ConfigError("Invalid filter: please use 'all', 'installed', or 'not-installed'")
    from flm.models.store import open_store

    rows = [row for row in _rows(open_store()) if _passes(row, filter_by)]
    if as_json:
        say_json({"models": [row.to_dict() for row in rows]})
    elif quiet:
        for row in rows:
            say(row.name)
    else:
        say_table(_table(rows))


def _rows(store: "ModelStore") -> list[_Row]:
    installed = {model.name: model for model in store.installed()}
    rows = [
        _Row(entry.name, entry, installed.pop(entry.name, None)) for entry in store.catalog.entries
    ]
    return rows + [_Row(name, None, model) for name, model in installed.items()]


def _passes(row: _Row, filter_by: str) -> bool:
    return filter_by == "all" or row.is_installed == (filter_by == "installed")


def _table(rows: list[_Row]) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("MODEL", no_wrap=True)
    table.add_column("SIZE", justify="right", no_wrap=True)
    table.add_column("PARAMS", justify="right", no_wrap=True)
    table.add_column("QUANT", no_wrap=True)
    table.add_column("CONTEXT", justify="right", no_wrap=True)
    table.add_column("CAPABILITIES", no_wrap=True)
    table.add_column("STATE", no_wrap=True)
    styles = {"ready": "green", "damaged": "red", "not downloaded": "dim"}
    for row in rows:
        table.add_row(row.name, row.size, *_entry_cells(row), row.state, style=styles[row.state])
    return table


def _entry_cells(row: _Row) -> tuple[str, str, str, str]:
    entry = row.entry
    if entry is None:
        return ("?", "?", "?", "")
    return (
        entry.parameter_size,
        entry.quantization,
        str(entry.default_ctx_len),
        ", ".join(entry.labels),
    )
