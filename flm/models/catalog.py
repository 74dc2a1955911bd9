"""The catalogue: which tags exist, where their files come from, and how they behave.

The data is ``catalog.json`` beside this file; this is its only reader. A wrong entry is an
error when the catalogue is loaded, never later.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

from flm.errors import ModelFileError
from flm.models.sources.base import Source
from flm.models.sources.hub import HubSource
from flm.models.sources.wheel import WheelSource
from flm.types import SamplingParams, ThinkMode

LABELS = frozenset({"tools", "reasoning", "gated"})
"""``tools``: the model's own template knows them. ``gated``: its terms must be accepted first."""

_CATALOG_FILE = Path(__file__).with_name("catalog.json")


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One model. Lengths are in tokens, ``footprint_gb`` is the approximate size of its weights.

    ``sampling`` are the defaults of a request that sends no sampling field.
    """

    name: str
    family: str
    source: Source
    parameter_size: str
    quantization: str
    default_ctx_len: int
    max_ctx_len: int
    max_prefill_len: int
    footprint_gb: float
    sampling: SamplingParams
    labels: tuple[str, ...] = ()
    think: ThinkMode = "none"

    def __post_init__(self) -> None:
        head, _, size = self.name.partition(":")
        _demand(bool(head and size) and not set(self.name) & set("/\\ "), self.name, "bad tag")
        lengths = 0 < self.default_ctx_len <= self.max_ctx_len and self.max_prefill_len > 0
        _demand(lengths, self.name, "bad length")
        _demand(self.footprint_gb > 0, self.name, "bad footprint")
        _demand(set(self.labels) <= LABELS, self.name, "unknown label")
        _demand(self.think in get_args(ThinkMode), self.name, "bad think")
        reasons = "reasoning" in self.labels
        _demand(reasons == (self.think != "none"), self.name, "think and labels disagree")

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, as ``flm list --json`` prints it."""
        return {
            "name": self.name,
            "family": self.family,
            "parameter_size": self.parameter_size,
            "quantization": self.quantization,
            "default_ctx_len": self.default_ctx_len,
            "max_ctx_len": self.max_ctx_len,
            "max_prefill_len": self.max_prefill_len,
            "footprint_gb": self.footprint_gb,
            "labels": list(self.labels),
            "think": self.think,
            "sampling": asdict(self.sampling),
            "source": self.source.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Catalog:
    """All entries, the sizes of a family from small to large."""

    entries: tuple[CatalogEntry, ...]

    def find(self, name: str) -> CatalogEntry | None:
        """The entry of a tag. A tag without its size means the first one listed."""
        for entry in self.entries:
            if name in (entry.name, entry.name.partition(":")[0]):
                return entry
        return None

    def near(self, name: str, others: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Up to three tags (or ``others``) that are spelt like ``name``, the closest first."""
        names = [*(entry.name for entry in self.entries), *others]
        close = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.6)
        head = name.lower().partition(":")[0]
        same = [other for other in names if head and other.partition(":")[0] == head]
        return tuple(dict.fromkeys([*close, *same]))[:3]


# --- reading -----------------------------------------------------------------------------------


@cache
def load_catalog(path: Path = _CATALOG_FILE) -> Catalog:
    """Read and validate a catalogue.

    Raises:
        ModelFileError: the file is not there, or an entry is wrong; the message names it.
    """
    try:
        return parse_catalog(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"The catalogue {path} cannot be read ({error}). Install flm again."
        ) from error


def parse_catalog(data: Mapping[str, Any]) -> Catalog:
    """The catalogue of parsed JSON.

    Raises:
        ValueError: an entry is wrong; the message names it.
    """
    try:
        families = {name: SamplingParams(**sampling) for name, sampling in data["families"].items()}
        max_prefill_len = data["max_prefill_len"]
        entries = tuple(_entry(item, families, max_prefill_len) for item in data["models"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a field is missing, unknown or of the wrong kind: {error}") from error
    names = [entry.name for entry in entries]
    repeated = sorted({name for name in names if names.count(name) > 1})
    _demand(not repeated, ", ".join(repeated), "listed twice")
    return Catalog(entries)


def _entry(
    item: Mapping[str, Any], families: Mapping[str, SamplingParams], max_prefill_len: int
) -> CatalogEntry:
    own = dict(item)
    own["source"] = parse_source(item["source"])
    own["labels"] = tuple(item["labels"])
    own.setdefault("max_prefill_len", max_prefill_len)
    return CatalogEntry(sampling=families[item["family"]], **own)


def parse_source(data: Mapping[str, Any]) -> Source:
    """The source that an entry describes.

    Raises:
        ValueError: the kind is unknown.
        TypeError: a field is missing or unknown.
    """
    fields = {key: value for key, value in data.items() if key != "kind"}
    match data["kind"]:
        case "hub":
            return HubSource(**fields)
        case "wheel":
            return WheelSource(**fields)
        case kind:
            raise ValueError(f"unknown kind of source: {kind!r}")


def _demand(condition: bool, name: str, problem: str) -> None:
    if not condition:
        raise ValueError(f"{name}: {problem}")
