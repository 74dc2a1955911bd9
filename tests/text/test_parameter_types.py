"""The types that the schema of a parameter names."""

from typing import Any

import pytest

from flm.text.parameter_types import named_types

ROOT = {
    "$defs": {
        "name": {"type": "string"},
        "loop": {"$ref": "#/$defs/loop"},
        "a/b": [{"type": "null"}],
    }
}
CASES: list[tuple[Any, set[str]]] = [
    ({"type": "string"}, {"string"}),
    ({"type": ["string", "null"]}, {"string", "null"}),
    ({"anyOf": [{"type": "integer"}, {"enum": ["x"]}]}, {"integer", "string"}),
    ({"oneOf": [{"type": "array"}]}, {"array"}),
    ({"allOf": [{"$ref": "#/$defs/name"}, {"minLength": 1}]}, {"string"}),
    ({"$ref": "#/$defs/loop"}, set()),
    ({"$ref": "#/$defs/a~1b/0"}, {"null"}),
    ({"$ref": "#/$defs/none"}, set()),
    ({"$ref": "other.json"}, set()),
    ({"const": "x"}, {"string"}),
    ({"enum": ["x", None, 5]}, {"string", "null"}),
    ({"enum": [1, 2]}, set()),
    ({}, set()),
    (True, set()),
    ({"type": {"wrong": 1}, "anyOf": 5, "enum": 5}, set()),
]


@pytest.mark.parametrize(("schema", "types"), CASES)
def test_types(schema: Any, types: set[str]) -> None:
    assert named_types(schema, ROOT) == types
