"""The record of a change: what was asked, what was done instead, and why.

One type serves the server's replies and the client library, so both sides tell one truth.
"""

from dataclasses import dataclass
from typing import Any, Literal

Action = Literal["dropped", "clamped", "substituted", "client_side", "satisfied", "defaulted"]
Mode = Literal["note", "silent", "refuse"]

REFUSABLE: frozenset[str] = frozenset({"dropped", "clamped", "substituted", "client_side"})
"""Actions that change what the caller asked for; ``refuse`` makes the first one an error."""


@dataclass(frozen=True, slots=True)
class Adaptation:
    """One change to a request. ``field`` is a dotted path in the caller's own terms."""

    field: str
    action: Action
    reason: str
    asked: Any = None
    applied: Any = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, without the keys that are None."""
        pairs = {
            "field": self.field,
            "action": self.action,
            "reason": self.reason,
            "asked": self.asked,
            "applied": self.applied,
        }
        return {key: value for key, value in pairs.items() if value is not None}


def first_refusable(adaptations: tuple[Adaptation, ...]) -> Adaptation | None:
    """The entry that ``refuse`` names, or None when nothing asked for was changed."""
    return next((entry for entry in adaptations if entry.action in REFUSABLE), None)
