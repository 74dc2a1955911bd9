"""The input of a call, which a model writes as text and some dialects give as an object."""

from math import isfinite
from typing import Any

from pydantic_core import from_json


def read_object(text: str, *, is_cut: bool = False) -> dict[str, Any] | None:
    """The JSON object that ``text`` is, or begins where it is cut; None: it is none, or no reply
    could carry it, as with numbers that are not finite."""
    if is_cut and not text:
        return {}
    try:
        value = from_json(text, allow_inf_nan=False, allow_partial=is_cut)
    except ValueError:
        return None
    return value if isinstance(value, dict) and _is_finite(value) else None


def _is_finite(value: Any) -> bool:
    """The parser lets numbers overflow, and it bounds how deep a value is."""
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or isfinite(value)
