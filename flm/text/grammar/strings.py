"""What a normalized schema says of the texts and the types of a value, for layouts that write
strings without JSON's quotes."""

from collections.abc import Mapping
from typing import Any

from flm.text.grammar.keywords import TYPES
from flm.text.grammar.lark import literal, regex
from flm.text.grammar.schema import SchemaError

ANY_TEXT = "/(?s:.*)/"
_PATTERN_HEAD, _PATTERN_TAIL = "^(?:", ")$"


def string_terminal(schema: Any, definitions: Mapping[str, Any], pointer: str) -> str:
    """A terminal of the strings that ``schema`` allows.

    Raises:
        SchemaError: it allows none, or refers to itself.
    """
    found = _terminal(schema, definitions, frozenset())
    if found is None:
        raise SchemaError(pointer, None, "no string satisfies it, and a string is written here")
    return found


def followed(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """A schema behind references that stand alone."""
    seen: set[str] = set()
    while isinstance(schema, dict) and "$ref" in schema and set(schema) <= {"$ref", "$defs"}:
        name = schema["$ref"].rpartition("/")[2]
        if name in seen:
            return schema
        seen.add(name)
        schema = definitions[name]
    return schema


def allowed_types(
    schema: Any, definitions: Mapping[str, Any], seen: frozenset[str] = frozenset()
) -> frozenset[str]:
    """The types that a value may have, perhaps with some that it may not."""
    if isinstance(schema, bool):
        return TYPES if schema else frozenset()
    named = schema.get("type", TYPES)
    result = frozenset([named]) if isinstance(named, str) else frozenset(named)
    texts = [schema["const"]] if "const" in schema else schema.get("enum")
    if texts is not None:
        result &= frozenset().union(*map(_types_of, texts))
    for part in schema.get("allOf", ()):
        result &= allowed_types(part, definitions, seen)
    if "anyOf" in schema:
        options = (allowed_types(option, definitions, seen) for option in schema["anyOf"])
        result &= frozenset().union(*options)
    name = schema.get("$ref", "").rpartition("/")[2]
    if name and name not in seen:
        result &= allowed_types(definitions[name], definitions, seen | {name})
    return result


def _types_of(value: Any) -> frozenset[str]:
    if value is None:
        return frozenset({"null"})
    if isinstance(value, bool):
        return frozenset({"boolean"})
    if isinstance(value, int | float):
        return frozenset({"integer", "number"})
    kinds: dict[type, str] = {str: "string", list: "array", dict: "object"}
    return frozenset({kinds[type(value)]})


def _terminal(schema: Any, definitions: Mapping[str, Any], seen: frozenset[str]) -> str | None:
    """A terminal's expression in parentheses; None where no string is allowed."""
    if isinstance(schema, bool):
        return ANY_TEXT if schema else None
    named = schema.get("type", "string")
    if "string" not in ([named] if isinstance(named, str) else named):
        return None
    demands = _own_demands(schema)
    for part in schema.get("allOf", ()):
        demands.append(_terminal(part, definitions, seen))
    if "anyOf" in schema:
        options = [_terminal(option, definitions, seen) for option in schema["anyOf"]]
        demands.append(_joined(" | ", [option for option in options if option is not None]))
    name = schema.get("$ref", "").rpartition("/")[2]
    if name:
        known = None if name in seen else _terminal(definitions[name], definitions, seen | {name})
        demands.append(known)
    plain = [demand for demand in demands if demand is not None]
    if len(plain) < len(demands):
        return None
    return _joined(" & ", plain) if plain else ANY_TEXT


def _own_demands(schema: Mapping[str, Any]) -> list[str | None]:
    demands: list[str | None] = []
    texts = [schema["const"]] if "const" in schema else schema.get("enum")
    if texts is not None:
        options = [literal(text) for text in texts if isinstance(text, str)]
        demands.append(_joined(" | ", options))
    if "pattern" in schema:
        inner = schema["pattern"].removeprefix(_PATTERN_HEAD).removesuffix(_PATTERN_TAIL)
        demands.append(regex(f"(?:{inner})"))
    if "minLength" in schema or "maxLength" in schema:
        bounds = f"{schema.get('minLength', 0)},{schema.get('maxLength', '')}"
        demands.append(regex(f"(?s:.{{{bounds}}})"))
    return demands


def _joined(operator: str, parts: list[str]) -> str | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else f"({operator.join(parts)})"
