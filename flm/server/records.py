"""The record of what was done other than asked, as one request gathers it."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flm.adaptation import Adaptation, Mode, first_refusable
from flm.errors import RefusedError
from flm.server.schemas.generation import NOT_READ, Unread
from flm.server.schemas.types import Schema, unknown_fields
from flm.sticky import SettingEntry

_MAX_SHOWN = 200
# Looking for near names costs time for each name; a body may hold very many.
_MAX_SUGGESTIONS = 32
_MAX_NAME_LEN = 40


@dataclass(slots=True)
class Records:
    """Adaptations in the making, and the warnings that go with them into the log."""

    adaptations: list[Adaptation] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def dropped(self, name: str, reason: str, asked: Any = None) -> None:
        """The field has no effect."""
        self.adaptations.append(Adaptation(name, "dropped", reason, shown(asked)))

    def clamped(self, name: str, reason: str, asked: Any, applied: Any) -> None:
        """The nearest value that works is in force."""
        self.adaptations.append(Adaptation(name, "clamped", reason, shown(asked), applied))

    def substituted(self, name: str, reason: str, asked: Any, applied: Any) -> None:
        """Something close to what was asked is in force."""
        self.adaptations.append(Adaptation(name, "substituted", reason, shown(asked), applied))


def shown(value: Any) -> Any:
    """``value`` if a record can carry it: a short scalar. None for everything else."""
    if isinstance(value, str):
        return value if len(value) <= _MAX_SHOWN else None
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else None
    return value if isinstance(value, float) else None


def ordered(entries: Iterable[Adaptation], schema: type[Schema]) -> tuple[Adaptation, ...]:
    """Known fields in the schema's order, then the others in the order they came."""
    places = {name: place for place, name in enumerate(schema.model_fields)}

    def place(entry: Adaptation) -> int:
        root = entry.field.partition(".")[0].partition("[")[0]
        return places.get(root, len(places))

    return tuple(sorted(entries, key=place))


def enforce(mode: Mode, adaptations: tuple[Adaptation, ...]) -> None:
    """Under ``refuse``, make the first change of the caller's wish an error.

    Raises:
        RefusedError: there is one.
    """
    entry = first_refusable(adaptations) if mode == "refuse" else None
    if entry is not None:
        raise RefusedError(
            f"{entry.field} would be {entry.action.replace('_', ' ')}, and the request refuses "
            f"adaptations: {entry.reason}",
            param=entry.field,
        )


def defaulted(entry: SettingEntry) -> Adaptation:
    """A setting the client did not send and that another request changed."""
    reason = "Settings stick; this one is not the model's default"
    if entry.origin is not None:
        at = entry.origin.at.isoformat(timespec="seconds")
        reason += f": request {entry.origin.request_id} set it at {at}"
    return Adaptation(entry.field, "defaulted", f"{reason}.", applied=entry.value)


class Speller:
    """Finds the field that a misspelt one was meant to be."""

    def __init__(self, known: Sequence[str]) -> None:
        self._by_core = {_core(name): name for name in known}
        self._num_asked = 0

    def suggestion(self, name: str) -> str | None:
        """The known field closest to ``name``, if one is close."""
        self._num_asked += 1
        if self._num_asked > _MAX_SUGGESTIONS or len(name) > _MAX_NAME_LEN:
            return None
        near = difflib.get_close_matches(_core(name), self._by_core, n=1, cutoff=0.8)
        return self._by_core[near[0]] if near else None


def _core(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def record_unknown(body: Schema, records: Records) -> None:
    """Record every field that ``body`` carries and its schema does not know."""
    schema = type(body)
    known_elsewhere: Mapping[str, Unread] = getattr(schema, "unread", {})
    read_anyway: frozenset[str] = getattr(schema, "reads_unknown", frozenset())
    spellers = {"": Speller(tuple(schema.model_fields)), **_inner_spellers(body)}
    for path, value in unknown_fields(body):
        if path in read_anyway:
            continue
        unread = known_elsewhere.get(path)
        if unread is not None:
            if not unread.is_met(value):
                records.dropped(path, unread.reason, value)
            continue
        if path == "options" and isinstance(value, dict):
            reason = "options is not read here; send its fields, such as repeat_last_n, at the "
            records.dropped(path, f"{reason}top level.")
            continue
        parent, dot, name = path.rpartition(".")
        near = spellers[parent].suggestion(name) if parent in spellers else None
        hint = "" if near is None else f" Did you mean {parent}{dot}{near}?"
        records.dropped(path, f"{NOT_READ}{hint}", value)


def _inner_spellers(body: Schema) -> dict[str, Speller]:
    """One for each object in a body, under its field."""
    values = ((name, getattr(body, name)) for name in type(body).model_fields)
    return {
        name: Speller(tuple(type(value).model_fields))
        for name, value in values
        if isinstance(value, Schema)
    }


def unknown_extras(body: Schema, mode: Mode) -> dict[str, Any]:
    """What a reply tells of the unknown fields of a body that has no others to tell of.

    Raises:
        RefusedError: there are some, and the mode is ``refuse``.
    """
    records = Records()
    record_unknown(body, records)
    enforce(mode, tuple(records.adaptations))
    return {} if mode == "silent" else extras_of(tuple(records.adaptations))


def extras_of(adaptations: tuple[Adaptation, ...]) -> dict[str, Any]:
    """The key of a reply that shows them, or nothing."""
    return {"adaptations": [entry.to_dict() for entry in adaptations]} if adaptations else {}
