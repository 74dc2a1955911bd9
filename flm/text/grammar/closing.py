"""Arguments that are declared are those that are written.

A schema that lists ``properties`` and says nothing of others allows any key besides. As a
description of a tool's arguments that is never meant: no function reads an argument that nobody
declared, and a model that may write them does so until its tokens are used up. So the objects of
such schemas hold the keys they list, unless ``additionalProperties`` or ``patternProperties`` speak
of others. What is written satisfies the schema as it was sent.
"""

from collections.abc import Mapping
from typing import Any

_SPEAK_OF_OTHERS = ("additionalProperties", "patternProperties", "minProperties")


def with_declared_keys(schema: dict[str, Any]) -> dict[str, Any]:
    """A normalized schema whose objects hold no keys but those that they declare.

    Where several schemas describe one object together, each is left as it is: what one of them
    does not declare another may.
    """
    shared = _Shared(schema["$defs"])
    shared.look(schema, is_shared=False)
    root = schema["$ref"].rpartition("/")[2]
    definitions = {
        name: part if name in shared.names else _closed(part, is_root=name == root)
        for name, part in schema["$defs"].items()
    }
    return {**schema, "$defs": definitions}


class _Shared:
    """Finds the definitions that are combined with other schemas somewhere."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self.names: set[str] = set()
        self._definitions = definitions
        self._seen: set[tuple[str, bool]] = set()

    def look(self, schema: Any, *, is_shared: bool) -> None:
        if isinstance(schema, bool):
            return
        is_shared = is_shared or _combines(schema)
        for part in _parts(schema):
            self.look(part, is_shared=is_shared)
        name = schema.get("$ref", "").rpartition("/")[2]
        if name and (name, is_shared) not in self._seen:
            self._seen.add((name, is_shared))
            if is_shared:
                self.names.add(name)
            self.look(self._definitions[name], is_shared=is_shared)


def _combines(schema: Mapping[str, Any]) -> bool:
    """True when more than one schema speaks of the same value."""
    sources = [key for key in schema if key in ("$ref", "anyOf", "properties", "items")]
    return "allOf" in schema or len(sources) > 1


def _parts(schema: Mapping[str, Any]) -> list[Any]:
    parts = list(schema.get("properties", {}).values())
    parts += schema.get("patternProperties", {}).values()
    for keyword in ("allOf", "anyOf", "prefixItems"):
        parts += schema.get(keyword, ())
    parts += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    return parts


def _closed(schema: Any, *, is_root: bool = False) -> Any:
    if isinstance(schema, bool) or _combines(schema):
        return schema
    out = dict(schema)
    for keyword in ("properties", "patternProperties"):
        if keyword in out:
            out[keyword] = {key: _closed(part) for key, part in out[keyword].items()}
    for keyword in ("anyOf", "prefixItems"):
        if keyword in out:
            out[keyword] = [_closed(part) for part in out[keyword]]
    for keyword in ("items", "additionalProperties"):
        if keyword in out:
            out[keyword] = _closed(out[keyword])
    declared = out.get("properties")
    # An inner object with an empty list is one whose keys nobody cared to list.
    is_listed = declared is not None and (is_root or declared != {})
    is_silent = is_listed and not any(key in out for key in _SPEAK_OF_OTHERS)
    if is_silent and set(out.get("required", ())) <= set(out["properties"]):
        out["additionalProperties"] = False
    return out
