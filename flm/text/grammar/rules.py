"""The rules for keywords that hold no schemas: from a value to the keywords of the copy.

A rule raises ValueError for a value that is malformed or cannot be enforced; the caller adds the
place.
"""

from collections.abc import Callable, Iterable
from typing import Any

from flm.text.grammar.formats import FORMATS
from flm.text.grammar.keywords import FORMAT_NAMES, TYPES
from flm.text.grammar.pattern import translate
from flm.text.grammar.values import check_string, check_value


def named(keyword: str, check: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """A rule for one of several keywords that one function checks."""

    def rule(value: Any, node: dict[str, Any], _: str, __: int) -> dict[str, Any]:
        checked = check(keyword, value, node)
        return {} if checked is None else {keyword: checked}

    return rule


def nothing(*_: Any) -> dict[str, Any]:
    """``additionalItems`` counts beside a list of ``items`` only, which reads it."""
    return {}


def check_type(value: Any, *_: Any) -> dict[str, Any]:
    """``type``."""
    names: Iterable[Any] = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise ValueError("a type is a name or a list of names")
    wrong = next((name for name in names if name not in TYPES), None)
    if wrong is not None:
        raise ValueError(f"there is no type {wrong!r}")
    return {"type": value}


def check_const(value: Any, *_: Any) -> dict[str, Any]:
    """``const``."""
    return {"const": check_value(value)}


def check_enum(value: Any, *_: Any) -> dict[str, Any]:
    """``enum``."""
    if not isinstance(value, list) or not value:
        raise ValueError("it is a list of at least one value")
    return {"enum": [check_value(item) for item in value]}


def check_format(value: Any, *_: Any) -> dict[str, Any]:
    """``format``, as a pattern."""
    if not isinstance(value, str) or value not in FORMATS:
        raise ValueError(
            f"the format {value!r} cannot be enforced; those that can: {', '.join(FORMAT_NAMES)}"
        )
    return {"pattern": f"^(?:{translate(FORMATS[value], whole=True)})$"}


def check_pattern(value: Any, *_: Any) -> dict[str, Any]:
    """``pattern``."""
    if not isinstance(value, str):
        raise ValueError("a pattern is a string")  # noqa: TRY004 - the caller adds the place
    return {"pattern": translated(value)}


def translated(pattern: str) -> str:
    """A pattern of the schema in the engine's dialect."""
    return f"^(?:{translate(pattern)})$"


def check_required(value: Any, *_: Any) -> dict[str, Any]:
    """``required``."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError("it is a list of names")
    return {"required": [check_string(name) for name in dict.fromkeys(value)]}
