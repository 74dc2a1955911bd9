"""Proving that no value satisfies two schemas, which makes ``oneOf`` the same as ``anyOf``."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

from flm.text.grammar.keywords import TYPES

_ALL = TYPES - {"integer"}
_MAX_DEPTH = 8
_MAX_STEPS = 50_000
Definitions = Mapping[str, Any]
Parts = Sequence[dict[str, Any]]


def are_disjoint(options: Sequence[Any], definitions: Definitions) -> bool:
    """True when every two of the (normalized) schemas provably exclude each other."""
    prover = _Prover(definitions)
    return all(prover.excludes(a, b, 0) for a, b in combinations(options, 2))


class _Prover:
    """A search for a reason, with a bound on its work; what is not found is not claimed."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._num_steps = 0

    def excludes(self, one: Any, other: Any, depth: int) -> bool:
        self._num_steps += 1
        if one is False or other is False:
            return True
        if depth > _MAX_DEPTH or self._num_steps > _MAX_STEPS or one is True or other is True:
            return False
        ones, others = self._parts(one), self._parts(other)
        shared = _types(ones) & _types(others)
        if not shared or _values_differ(ones, others):
            return True
        if shared == {"number"} and (_is_below(ones, others) or _is_below(others, ones)):
            return True
        if shared == {"object"} and self._properties_exclude(ones, others, depth):
            return True
        return self._options_exclude(one, other, depth) or self._options_exclude(other, one, depth)

    def _parts(self, schema: Any) -> Parts:
        """The schema and all that hold wherever it does."""
        return list(self._walk(schema))

    def _walk(self, schema: Any) -> Iterator[dict[str, Any]]:
        stack, seen = [schema], set()
        while stack:
            part = stack.pop()
            if not isinstance(part, dict):
                continue
            self._num_steps += 1
            yield part
            stack += part.get("allOf", ())
            name = part.get("$ref", "").rpartition("/")[2]
            if name and name not in seen:
                seen.add(name)
                stack.append(self._definitions.get(name))

    def _options_exclude(self, one: Any, other: Any, depth: int) -> bool:
        """Every option of one excludes the other."""
        options = one.get("anyOf")
        return options is not None and all(
            self.excludes(option, other, depth + 1) for option in options
        )

    def _properties_exclude(self, ones: Parts, others: Parts, depth: int) -> bool:
        return any(
            self._by_property(a, b, depth) or self._by_property(b, a, depth)
            for a, b in product(ones, others)
        )

    def _by_property(self, one: dict[str, Any], other: dict[str, Any], depth: int) -> bool:
        """A property that ``one`` requires cannot be in ``other``, or not with that value."""
        known, own = other.get("properties", {}), one.get("properties", {})
        is_closed = other.get("additionalProperties") is False and not other.get(
            "patternProperties"
        )
        return any(
            self.excludes(own.get(name, True), known[name], depth + 1)
            if name in known
            else is_closed
            for name in one.get("required", ())
        )


def _types(parts: Parts) -> frozenset[str]:
    """The types that a value may have; integers are numbers here."""
    result = _ALL
    for part in parts:
        if "type" in part:
            names = [part["type"]] if isinstance(part["type"], str) else part["type"]
            result &= {"number" if name == "integer" else name for name in names}
        values = _values(part)
        if values is not None:
            result &= {_type_of(value) for value in values}
    return result


def _type_of(value: Any) -> str:
    names = {bool: "boolean", str: "string", list: "array", dict: "object"}
    return "null" if value is None else names.get(type(value), "number")


def _values(part: dict[str, Any]) -> list[Any] | None:
    if "const" in part:
        return [part["const"]]
    values: list[Any] | None = part.get("enum")
    return values


def _values_differ(ones: Parts, others: Parts) -> bool:
    lists = [[_canonical(v) for part in parts if (v := _values(part)) is not None]
             for parts in (ones, others)]  # fmt: skip
    return any(a.isdisjoint(b) for a, b in product(*lists))


def _canonical(values: list[Any]) -> frozenset[str]:
    """Whole floats have become integers, so equal values are written alike."""
    return frozenset(json.dumps(value, sort_keys=True) for value in values)


def _is_below(ones: Parts, others: Parts) -> bool:
    tops = [part[k] for part in ones for k in ("maximum", "exclusiveMaximum") if k in part]
    bottoms = [part[k] for part in others for k in ("minimum", "exclusiveMinimum") if k in part]
    return bool(tops) and bool(bottoms) and min(tops) < max(bottoms)
