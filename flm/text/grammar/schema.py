"""Checking a JSON Schema and writing it anew for the grammar engine. Fails closed.

The engine passes over keywords that it does not know, so it never sees the caller's schema: it
gets a copy that holds nothing but assertions that have been looked at one by one. The copy is in
draft 2020-12, its references are resolved into ``$defs`` of our own names, its patterns are
translated. Whatever cannot be enforced raises ``SchemaError`` with the place.
"""

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from flm.text.grammar.disjoint import are_disjoint
from flm.text.grammar.finite import endless_definition
from flm.text.grammar.keywords import (
    ANNOTATIONS,
    BOUNDS,
    COUNTS,
    DRAFTS,
    ENFORCED,
    KNOWN,
    SUBSCHEMA_LISTS,
    SUBSCHEMAS,
    is_vacuous,
)
from flm.text.grammar.references import ReferenceError_, References, escaped
from flm.text.grammar.rules import (
    check_const,
    check_enum,
    check_format,
    check_pattern,
    check_required,
    check_type,
    named,
    nothing,
    translated,
)
from flm.text.grammar.values import check_bound, check_count, check_string

MAX_DEPTH = 48
"""Of nested schemas, references counted: the engine recurses over them."""


class SchemaError(ValueError):
    """A schema that cannot be enforced. ``pointer`` leads to the place, ``keyword`` names it."""

    def __init__(self, pointer: str, keyword: str | None, problem: str) -> None:
        where = f"#{pointer}" if pointer else "the root"
        name = "" if keyword is None else f"{keyword} "
        super().__init__(f"{name}at {where}: {problem}")
        self.pointer = pointer
        self.keyword = keyword


def normalize(schema: Any) -> dict[str, Any]:
    """A copy of ``schema`` that the engine enforces to the letter.

    Raises:
        SchemaError: some assertion cannot be enforced, or the schema is malformed.
    """
    return _Normalizer(schema).run()


class _Normalizer:
    """One pass over one document."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._references = References(root)
        self._names: dict[str, str] = {}
        self._definitions: dict[str, Any] = {}
        self._rules = self._make_rules()

    def run(self) -> dict[str, Any]:
        result = self._definition("", "", 0)
        root = self._definitions[result]
        if root is False:
            raise SchemaError("", None, "the schema allows no value at all")
        if (endless := endless_definition(self._definitions)) is not None:
            pointer = next(path for path, name in self._names.items() if name == endless)
            raise SchemaError(pointer, "$ref", "no finite value satisfies this recursion")
        return {"$ref": f"#/$defs/{result}", "$defs": self._definitions}

    # --- schemas -------------------------------------------------------------------------------

    def _definition(self, target: str, pointer: str, depth: int) -> str:
        """The name of the definition made from the schema at ``target``."""
        if target in self._names:
            return self._names[target]
        name = self._names[target] = f"d{len(self._names)}"
        try:
            node = self._references.resolve(target)
        except ReferenceError_ as error:
            raise SchemaError(pointer, "$ref", str(error)) from error
        self._definitions[name] = self._schema(node, target, depth + 1)
        return name

    def _schema(self, node: Any, pointer: str, depth: int) -> Any:
        if isinstance(node, bool):
            return node
        if not isinstance(node, dict):
            raise SchemaError(pointer, None, "a schema is an object, true or false")
        if depth > MAX_DEPTH:
            raise SchemaError(
                pointer, None, f"schemas are nested (or refer on) more than {MAX_DEPTH} deep"
            )
        self._check_identity(node, pointer)
        out: dict[str, Any] = {}
        for keyword, value in node.items():
            if self._is_enforced(keyword, value, node, pointer):
                self._add(out, self._apply(keyword, value, node, pointer, depth))
        _check_min_properties(out, pointer)
        return _beside_each_other(out)

    def _check_identity(self, node: dict[str, Any], pointer: str) -> None:
        identifier = node.get("$id")
        if pointer and isinstance(identifier, str) and not identifier.startswith("#"):
            raise SchemaError(pointer, "$id", "a schema within the schema cannot have its own $id")
        dialect = node.get("$schema")
        if dialect is not None and str(dialect).rstrip("#") not in DRAFTS:
            raise SchemaError(pointer, "$schema", f"the dialect {dialect!r} is not known")

    def _is_enforced(self, keyword: str, value: Any, node: dict[str, Any], pointer: str) -> bool:
        if keyword in ENFORCED:
            return True
        if keyword in ANNOTATIONS or keyword.startswith("x-") or is_vacuous(keyword, value, node):
            return False
        if keyword in KNOWN:
            raise SchemaError(pointer, keyword, "this keyword cannot be enforced")
        near = difflib.get_close_matches(keyword, sorted(ENFORCED), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise SchemaError(pointer, keyword, f"this keyword is not known{hint}")

    def _apply(
        self, keyword: str, value: Any, node: dict[str, Any], pointer: str, depth: int
    ) -> dict[str, Any]:
        try:
            return self._rules[keyword](value, node, f"{pointer}/{escaped(keyword)}", depth)
        except ValueError as error:
            if isinstance(error, SchemaError):
                raise
            raise SchemaError(pointer, keyword, str(error)) from error

    @staticmethod
    def _add(out: dict[str, Any], new: dict[str, Any]) -> None:
        """Put keywords in, those that stand there already by way of ``allOf``."""
        for keyword, value in new.items():
            if keyword == "allOf":
                out["allOf"] = [*out.get("allOf", []), *value]
            elif keyword in out:
                out["allOf"] = [*out.get("allOf", []), {keyword: value}]
            else:
                out[keyword] = value

    # --- rules: value, schema, pointer and depth to keywords of the copy -------------------------

    def _make_rules(self) -> Mapping[str, Callable[..., dict[str, Any]]]:
        rules: dict[str, Callable[..., dict[str, Any]]] = {
            "$ref": self._ref,
            "type": check_type,
            "const": check_const,
            "enum": check_enum,
            "format": check_format,
            "pattern": check_pattern,
            "required": check_required,
            "properties": self._properties,
            "patternProperties": self._pattern_properties,
        }
        for keyword in COUNTS:
            rules[keyword] = named(keyword, check_count)
        for keyword in BOUNDS:
            rules[keyword] = named(keyword, check_bound)
        for keyword in SUBSCHEMAS:
            rules[keyword] = self._subschema(keyword)
        for keyword in SUBSCHEMA_LISTS:
            rules[keyword] = self._subschema_list(keyword)
        return {**rules, "oneOf": self._one_of, "items": self._items, "additionalItems": nothing}

    def _ref(self, value: Any, _: Any, pointer: str, depth: int) -> dict[str, Any]:
        if not isinstance(value, str):
            raise ValueError("a reference is a string")  # noqa: TRY004 - the caller adds the place
        target = self._references.pointer(value)
        name = self._definition(target, pointer.rpartition("/")[0], depth)
        return {"$ref": f"#/$defs/{name}"}

    def _subschema(self, keyword: str) -> Callable[..., dict[str, Any]]:
        def rule(value: Any, _: Any, pointer: str, depth: int) -> dict[str, Any]:
            return {keyword: self._schema(value, pointer, depth + 1)}

        return rule

    def _subschema_list(self, keyword: str) -> Callable[..., dict[str, Any]]:
        def rule(value: Any, _: Any, pointer: str, depth: int) -> dict[str, Any]:
            if not isinstance(value, list) or not value:
                raise ValueError("it is a list of at least one schema")
            return {keyword: self._schemas(value, pointer, depth)}

        return rule

    def _schemas(self, values: list[Any], pointer: str, depth: int) -> list[Any]:
        return [
            self._schema(value, f"{pointer}/{index}", depth + 1)
            for index, value in enumerate(values)
        ]

    def _one_of(self, value: Any, node: Any, pointer: str, depth: int) -> dict[str, Any]:
        options = self._subschema_list("oneOf")(value, node, pointer, depth)["oneOf"]
        possible = [option for option in options if option is not False]
        if not are_disjoint(possible, self._definitions):
            raise ValueError(
                "the options overlap, or cannot be told apart; use anyOf, or give each a property "
                "that is required and has a const of its own"
            )
        return {"anyOf": possible or [False]}

    def _items(self, value: Any, node: dict[str, Any], pointer: str, depth: int) -> dict[str, Any]:
        if not isinstance(value, list):
            return {"items": self._schema(value, pointer, depth + 1)}
        result: dict[str, Any] = {"prefixItems": self._schemas(value, pointer, depth)}
        if "additionalItems" in node:
            beside = f"{pointer.rpartition('/')[0]}/additionalItems"
            result["items"] = self._schema(node["additionalItems"], beside, depth + 1)
        return result

    def _properties(self, value: Any, _: Any, pointer: str, depth: int) -> dict[str, Any]:
        return {"properties": self._map(value, pointer, depth, check_string)}

    def _pattern_properties(self, value: Any, _: Any, pointer: str, depth: int) -> dict[str, Any]:
        result = self._map(value, pointer, depth, translated)
        if len(result) != len(value):
            raise ValueError("two of the patterns are the same")
        return {"patternProperties": result}

    def _map(
        self, value: Any, pointer: str, depth: int, key_rule: Callable[[str], str]
    ) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError("it is an object of schemas")  # noqa: TRY004 - as above
        return {
            key_rule(key): self._schema(inner, f"{pointer}/{escaped(key)}", depth + 1)
            for key, inner in value.items()
        }


def _check_min_properties(out: dict[str, Any], pointer: str) -> None:
    """Keys that no ``properties`` name may come twice, so no more than one can be counted on."""
    is_closed = out.get("additionalProperties") is False and not out.get("patternProperties")
    free = out.get("minProperties", 0) - len(out.get("required", []))
    if free > 1 and not is_closed:
        raise SchemaError(
            pointer, "minProperties", "more than one key beyond the required cannot be enforced"
        )


def _beside_each_other(out: dict[str, Any]) -> dict[str, Any]:
    """The same keywords, those that depend on each other side by side: the engine reads a schema
    in pieces, cut at ``allOf`` and its like."""
    result: dict[str, Any] = {}
    for keyword in out:
        for family in _FAMILIES:
            if keyword in family:
                result |= {member: out[member] for member in family if member in out}
        result.setdefault(keyword, out[keyword])
    return result


_FAMILIES = (("properties", "patternProperties", "additionalProperties"), ("prefixItems", "items"))
