"""Recursion that never ends: a schema that only endless values satisfy must not be begun."""

from collections.abc import Mapping
from typing import Any


def endless_definition(definitions: Mapping[str, Any]) -> str | None:
    """The name of a definition without any finite value, or None.

    A least fixed point over the definitions: one is finite once all that it cannot do without is.
    """
    finite: set[str] = set()
    while True:
        new = {n for n, schema in definitions.items() if n not in finite and _ends(schema, finite)}
        if not new:
            return next((name for name in definitions if name not in finite), None)
        finite |= new


def _ends(schema: Any, finite: set[str]) -> bool:
    if isinstance(schema, bool):
        return True
    if "$ref" in schema and schema["$ref"].rpartition("/")[2] not in finite:
        return False
    if not all(_ends(part, finite) for part in schema.get("allOf", ())):
        return False
    if "anyOf" in schema and not any(_ends(option, finite) for option in schema["anyOf"]):
        return False
    types = schema.get("type")
    if isinstance(types, str):
        types = [types]
    if types is None or not set(types) <= {"object", "array"}:
        return True
    return any(_kind_ends(schema, kind, finite) for kind in types)


def _kind_ends(schema: dict[str, Any], kind: str, finite: set[str]) -> bool:
    if kind == "object":
        known = schema.get("properties", {})
        other = schema.get("additionalProperties", True)
        required = schema.get("required", ())
        return all(_ends(known.get(name, other), finite) for name in required)
    count = schema.get("minItems", 0)
    prefix = schema.get("prefixItems", [])
    needed = prefix[:count] + ([schema.get("items", True)] if count > len(prefix) else [])
    return all(_ends(item, finite) for item in needed)
