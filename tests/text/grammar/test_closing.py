"""Which objects hold only the keys that they declare."""

from typing import Any

import jsonschema_rs
import pytest

from flm.text.grammar.closing import with_declared_keys
from flm.text.grammar.schema import normalize

A = {"properties": {"a": {"type": "integer"}}}
CLOSED: list[tuple[Any, Any, Any]] = [
    # a schema, what it still allows, what it allows no more
    (A, {"a": 1}, {"a": 1, "b": 1}),
    ({"properties": {}}, {}, {"b": 1}),
    ({"properties": {"x": A}}, {"x": {"a": 1}}, {"x": {"b": 1}}),
    ({"properties": {"x": {"items": A}}}, {"x": [{"a": 1}]}, {"x": [{"b": 1}]}),
    ({"properties": {"x": {"anyOf": [A, {"type": "null"}]}}}, {"x": None}, {"x": {"b": 1}}),
    ({"properties": {"x": {"$ref": "#/$defs/d"}}, "$defs": {"d": A}}, {"x": {}}, {"x": {"b": 1}}),
    ({"additionalProperties": A}, {"k": {"a": 1}}, {"k": {"b": 1}}),
    (
        {"properties": {"x": {"$ref": "#"}, "a": {"type": "integer"}}},
        {"x": {"a": 1}},
        {"x": {"b": 1}},
    ),
]
LEFT: list[tuple[Any, Any]] = [
    # a schema, and an instance with keys that it does not declare and that stays allowed
    ({}, {"b": 1}),
    ({"type": "object"}, {"b": 1}),
    ({**A, "additionalProperties": True}, {"b": 1}),
    ({**A, "additionalProperties": {"type": "integer"}}, {"b": 1}),
    ({**A, "patternProperties": {"^b": {}}}, {"b": 1}),
    ({**A, "required": ["b"]}, {"b": 1}),
    ({"properties": {"x": {"type": "object", "properties": {}}}}, {"x": {"b": 1}}),
    ({"allOf": [A, {"properties": {"b": {}}}]}, {"a": 1, "b": 1}),
    ({**A, "anyOf": [{"properties": {"b": {}}}]}, {"a": 1, "b": 1}),
    ({**A, "$ref": "#/$defs/d", "$defs": {"d": {"properties": {"b": {}}}}}, {"a": 1, "b": 1}),
    (
        {"allOf": [{"properties": {"x": A}}, {"properties": {"x": {"properties": {"b": {}}}}}]},
        {"x": {"a": 1, "b": 1}},
    ),
]


@pytest.mark.parametrize(("schema", "right", "wrong"), CLOSED)
def test_declared_keys_only(schema: Any, right: Any, wrong: Any) -> None:
    narrow = jsonschema_rs.validator_for(with_declared_keys(normalize(schema)))
    assert jsonschema_rs.is_valid(schema, wrong)
    assert narrow.is_valid(right)
    assert not narrow.is_valid(wrong)


@pytest.mark.parametrize(("schema", "instance"), LEFT)
def test_other_keys_that_are_spoken_of(schema: Any, instance: Any) -> None:
    assert jsonschema_rs.is_valid(with_declared_keys(normalize(schema)), instance)
