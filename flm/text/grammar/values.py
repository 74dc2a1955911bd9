"""Checks of the values in a schema: what the engine can hold exactly."""

from typing import Any

_MAX_COUNT = 1_000_000
"""More than a reply can hold; a larger maximum comes down to it."""
_MAX_INTEGER = 1 << 53
_MAX_FLOAT = 1e15
_MAX_DEPTH = 32
_MIN_FLOAT = 1e-9
_SHORT_ESCAPES = frozenset("\b\f\n\r\t")


def check_count(keyword: str, value: Any, _: Any) -> int:
    """A count of items, characters or keys.

    Raises:
        ValueError: it is no such count, or a minimum that no reply could reach.
    """
    is_whole = isinstance(value, float) and value.is_integer()
    count = int(value) if is_whole else value
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ValueError("it is a whole number >= 0")
    if count > _MAX_COUNT and keyword.startswith("min"):
        raise ValueError(f"more than {_MAX_COUNT} cannot be enforced")
    return min(count, _MAX_COUNT)


def check_bound(keyword: str, value: Any, schema: dict[str, Any]) -> int | float | None:
    """A bound of a number; None for the older ``exclusiveMinimum: false``.

    Raises:
        ValueError: it is no number, or one that cannot be held exactly.
    """
    if isinstance(value, bool) and keyword.startswith("exclusive"):
        if not value:
            return None
        value = schema.get(f"m{keyword.removeprefix('exclusiveM')}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("it is a number")  # noqa: TRY004 - the caller adds the place
    if keyword == "multipleOf" and value <= 0:
        raise ValueError("it is a number > 0")
    return check_number(value)


def check_number(value: int | float) -> int | float:
    """A number that a 64-bit float holds and that is written without an exponent.

    Raises:
        ValueError: it is not such a number.
    """
    limit = _MAX_INTEGER if isinstance(value, int) else _MAX_FLOAT
    if not -limit <= value <= limit:
        raise ValueError(f"the number {value} is too large to be enforced exactly")
    if 0 < abs(value) < _MIN_FLOAT:
        raise ValueError(f"the number {value} is too small to be enforced exactly")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_string(text: str) -> str:
    """A text that can be written in JSON without ``\\u`` escapes.

    They are not allowed in replies: with them a key could be spelled in a second way, and pass
    for another one.

    Raises:
        ValueError: the text holds another control character, or half a character.
    """
    for char in text:
        if (char < " " and char not in _SHORT_ESCAPES) or char == "\x7f":
            raise ValueError(f"the control character U+{ord(char):04X} cannot be enforced")
        if "\ud800" <= char <= "\udfff":
            raise ValueError(f"the lone surrogate U+{ord(char):04X} is no character")
    return text


def check_value(value: Any, depth: int = 0) -> Any:
    """A constant, with all that is in it.

    Raises:
        ValueError: part of it cannot be enforced exactly, or it is nested too deeply.
    """
    if depth > _MAX_DEPTH:
        raise ValueError(f"constants are nested more than {_MAX_DEPTH} deep")
    if isinstance(value, str):
        return check_string(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return check_number(value)
    if isinstance(value, list):
        return [check_value(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {check_string(key): check_value(inner, depth + 1) for key, inner in value.items()}
    return value
