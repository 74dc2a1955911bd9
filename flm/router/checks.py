"""Checks that the frozen values share. ``bool`` never counts as a number.

Each takes the path of the setting and raises TypeError for a wrong type, ValueError for a value
out of range; None is unset and passes.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any


def whole(path: str, value: Any, low: int | None = None) -> int | None:
    """An integer of at least ``low``; 20.0 is taken as 20."""
    if value is None:
        return None
    is_whole = isinstance(value, float) and value.is_integer()
    if isinstance(value, bool) or not (isinstance(value, int) or is_whole):
        raise TypeError(f"{path} must be an integer, not {_kind(value)}.")
    if low is not None and value < low:
        raise ValueError(f"{path} must be at least {low}, not {value}.")
    return int(value)


def number(path: str, value: Any, low: float, high: float = math.inf) -> float | None:
    """A finite number from ``low`` to ``high``."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{path} must be a number, not {_kind(value)}.")
    if not (low <= value <= high) or not math.isfinite(value):
        limits = f"at least {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"
        raise ValueError(f"{path} must be {limits}, not {value}.")
    return float(value)


def flag(path: str, value: Any) -> bool | None:
    """A boolean."""
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"{path} must be True or False, not {_kind(value)}.")
    return value


def word(path: str, value: Any, choices: Iterable[str] = ()) -> str | None:
    """A non-empty string, one of ``choices`` where there are any."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{path} must be a string, not {_kind(value)}.")
    allowed = tuple(choices)
    if allowed and value not in allowed:
        raise ValueError(f"{path} must be one of {', '.join(allowed)}, not {value!r}.")
    if not value:
        raise ValueError(f"{path} must not be empty.")
    return value


def words(path: str, value: Any) -> tuple[str, ...]:
    """Non-empty strings; a single string stands for a tuple of one, None for none."""
    if value is None:
        return ()
    listed = (value,) if isinstance(value, str) else value
    if isinstance(listed, Mapping | bytes) or not isinstance(listed, Iterable):
        raise TypeError(f"{path} must be a string or strings, not {_kind(value)}.")
    found = tuple(listed)
    for place, item in enumerate(found):
        word(f"{path}[{place}]", item)
        if item is None:
            raise TypeError(f"{path}[{place}] must be a string, not None.")
    return found


def instance(path: str, value: Any, kind: type[Any]) -> None:
    """None or a value of ``kind``."""
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{path} must be a {kind.__name__}, not {_kind(value)}.")


def json_object(path: str, value: Any) -> dict[str, Any] | None:
    """A copy of a JSON object."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TypeError(f"{path} must be a JSON object (a dict), not {_kind(value)}.")
    try:
        copy: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} must hold JSON values only: {error}.") from None
    return copy


def sendable(path: str, value: Any) -> None:
    """JSON whose texts UTF-8 can hold: a lone surrogate, as undecodable bytes in an argument of a
    program become, is no character."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            sendable(path, key)
            sendable(f"{path}.{key}" if path else str(key), item)
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            sendable(f"{path}[{place}]", item)
    elif isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            lone = value[error.start]
            problem = f"the lone surrogate {lone!a} at index {error.start}, which is no character"
            raise ValueError(f"{path} holds {problem}.") from None


def _kind(value: Any) -> str:
    return "None" if value is None else f"{type(value).__name__} ({value!r:.40})"
