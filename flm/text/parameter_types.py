"""The types that the schema of one parameter names.

Where a dialect writes values without quotes, they decide whether a text is a string. The grammar
and the reader of replies must agree on that, so both ask here.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote


def named_types(schema: Any, root: Any) -> frozenset[str]:
    """The types that ``schema`` names, by itself, in its options, or behind references into
    ``root``; empty where it names none."""
    return frozenset(_named(schema, root, set()))


def _named(schema: Any, root: Any, seen: set[str]) -> set[str]:
    if not isinstance(schema, Mapping):
        return set()
    named = schema.get("type")
    listed = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    types = {item for item in listed if isinstance(item, str)}
    for keyword in ("anyOf", "oneOf", "allOf"):
        options = schema.get(keyword)
        for option in options if isinstance(options, list) else ():
            types |= _named(option, root, seen)
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in seen:
        seen.add(reference)
        types |= _named(_target(root, reference), root, seen)
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if not types and isinstance(choices, list):
        types |= {"string" for choice in choices if isinstance(choice, str)}
        types |= {"null" for choice in choices if choice is None}
    return types


def _target(root: Any, reference: str) -> Any:
    """What a reference within the document leads to; None where that is nothing."""
    base, _, fragment = reference.partition("#")
    if base:
        return None
    node = root
    for step in unquote(fragment).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdigit() and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node
