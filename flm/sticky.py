"""Settings that stick: the state behind "a field you send stays in force until the reload".

A leaf without I/O: the server writes it, the service owns one per loaded model.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

from flm.types import SamplingParams, Settings

SAMPLING_FIELDS: tuple[str, ...] = tuple(item.name for item in fields(SamplingParams))
REASONING_FIELDS: tuple[str, ...] = ("think", "reasoning_effort")
STICKY_FIELDS: tuple[str, ...] = SAMPLING_FIELDS + REASONING_FIELDS


@dataclass(frozen=True, slots=True)
class Origin:
    """Who set a value, and when."""

    request_id: str
    at: datetime


@dataclass(frozen=True, slots=True)
class SettingEntry:
    """One field as it stands. ``origin`` is None while nobody has set it."""

    field: str
    value: Any
    default: Any
    origin: Origin | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The settings of one request, frozen when it was admitted.

    ``inherited`` are the fields the request did not send and whose value is not the default.
    """

    settings: Settings
    inherited: tuple[SettingEntry, ...]


def merged(settings: Settings, sent: Mapping[str, Any]) -> Settings:
    """``settings`` with the fields of ``sent`` (all of them sticky fields) put in."""
    sampling = {name: sent[name] for name in SAMPLING_FIELDS if name in sent}
    reasoning = {name: sent[name] for name in REASONING_FIELDS if name in sent}
    return replace(settings, sampling=replace(settings.sampling, **sampling), **reasoning)


def _value(settings: Settings, name: str) -> Any:
    return getattr(settings.sampling if name in SAMPLING_FIELDS else settings, name)


class StickyStore:
    """The settings in force for one loaded model. Every method is atomic."""

    def __init__(self, defaults: Settings) -> None:
        self.defaults = defaults
        self._lock = threading.Lock()
        self._settings = defaults
        self._origins: dict[str, Origin] = {}

    def peek(self, sent: Mapping[str, Any]) -> Snapshot:
        """What ``commit`` would give now, without writing."""
        with self._lock:
            return self._snapshot(merged(self._settings, sent), sent)

    def commit(self, sent: Mapping[str, Any], request_id: str) -> Snapshot:
        """Write ``sent`` and freeze the result: one act, in the order of the calls."""
        with self._lock:
            self._settings = merged(self._settings, sent)
            origin = Origin(request_id, datetime.now(UTC))
            self._origins.update(dict.fromkeys(sent, origin))
            return self._snapshot(self._settings, sent)

    def reset(self) -> None:
        """Back to the model's defaults, as a reload does."""
        with self._lock:
            self._settings = self.defaults
            self._origins.clear()

    def entries(self) -> tuple[SettingEntry, ...]:
        """Every sticky field as it stands."""
        with self._lock:
            return tuple(self._entry(self._settings, name) for name in STICKY_FIELDS)

    def _entry(self, settings: Settings, name: str) -> SettingEntry:
        return SettingEntry(
            field=name,
            value=_value(settings, name),
            default=_value(self.defaults, name),
            origin=self._origins.get(name),
        )

    def _snapshot(self, settings: Settings, sent: Mapping[str, Any]) -> Snapshot:
        entries = (self._entry(settings, name) for name in STICKY_FIELDS if name not in sent)
        inherited = tuple(entry for entry in entries if entry.value != entry.default)
        return Snapshot(settings=settings, inherited=inherited)
