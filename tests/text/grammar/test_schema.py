"""What of JSON Schema is enforced, and that the rest is refused with its place."""

from typing import Any

import pytest

from flm.errors import InvalidRequestError
from flm.text.grammar import GrammarCompiler
from flm.text.grammar.schema import SchemaError, normalize
from flm.text.tokenizer import Tokenizer
from tests.text.grammar.follow import accepts

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name"],
    "additionalProperties": False,
}
CAT = {"type": "object", "properties": {"kind": {"const": "cat"}}, "required": ["kind"]}
DOG = {"type": "object", "properties": {"kind": {"const": "dog"}}, "required": ["kind"]}

ENFORCED: list[tuple[Any, list[str], list[str]]] = [
    (True, ["1", '{"a": [null]}'], ["", "nul"]),
    ({"type": "null"}, ["null"], ["0", "false", '""']),
    ({"type": "boolean"}, ["true", "false"], ["0", "null", "True"]),
    ({"type": "integer"}, ["0", "-7", "12345"], ["1.5", "01", "+1", "1e2", '"1"']),
    ({"type": "number"}, ["0", "-1.5e-3", "2E+5"], [".5", "1.", "NaN", "Infinity"]),
    ({"type": ["string", "null"]}, ['"x"', "null"], ["1"]),
    ({"type": "integer", "minimum": -3, "maximum": 12}, ["-3", "0", "12"], ["-4", "13", "120"]),
    ({"type": "number", "exclusiveMinimum": 0, "maximum": 1}, ["0.5", "1"], ["0", "1.1", "-1"]),
    ({"type": "number", "minimum": 5, "exclusiveMinimum": True}, ["5.1"], ["5", "4"]),
    ({"type": "integer", "multipleOf": 7}, ["0", "21", "-14"], ["20", "1"]),
    ({"type": "number", "multipleOf": 0.01}, ["0.07", "3"], ["0.075"]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"é日x"'], ['"a"', '"abcd"']),
    ({"type": "string"}, ['"a\\"b\\n"', '"é🙂"'], ['"\n"', '"\\u0041"', '"\\ud800"', '"\\x"']),
    ({"pattern": "^a+$"}, ['"aa"', "1", "[]"], ['"ab"']),
    ({"type": "string", "pattern": "b"}, ['"abc"'], ['"ac"']),
    ({"type": "string", "format": "date"}, ['"2024-02-29"'], ['"2023-02-29"', '"2023-13-01"']),
    ({"type": "string", "format": "uuid", "pattern": "^a"},
     ['"a0000000-0000-0000-0000-000000000000"'], ['"b0000000-0000-0000-0000-000000000000"', '"a"']),
    ({"enum": ["a", 1, None, [True], {"k": 2}]},
     ['"a"', "1", "null", "[true]", '{"k": 2}'], ['"b"', "2", "[false]", '{"k": 3}']),
    ({"const": 1.0}, ["1"], ["2"]),
    (PERSON, ['{"name": "x"}', '{"name": "x", "age": 3}', '{\n  "name":"x"\n}'],
     ["{}", '{"age": 3}', '{"name": 3}', '{"name": "x", "b": 1}', '{"name": "x",  "age": 3}']),
    ({"type": "object", "properties": {"a": {"type": "integer"}}},
     ['{"b": "x"}', '{"a": 1, "b": 1}'], ['{"a": "x"}', '{"\\u0061": "x"}', '{"b": 1, "a": "x"}']),
    ({"type": "object", "patternProperties": {"^n": {"type": "integer"}, "^s": {"type": "string"}},
      "additionalProperties": False}, ['{"n1": 1, "s": "x"}'], ['{"n": "x"}', '{"t": 1}']),
    ({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1,
      "maxProperties": 2}, ['{"a": 1}', '{"a": 1, "b": 2}'], ["{}", '{"a": "x"}',
                                                            '{"a": 1, "b": 2, "c": 3}']),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
     ["[1]", "[1, 2]"], ["[]", "[1, 2, 3]", '["x"]']),
    ({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
     ["[]", "[1]", '[1, "x"]', "7"], ['["x"]', '[1, "x", 2]']),
    ({"items": [{"type": "integer"}], "additionalItems": {"type": "null"}, "type": "array"},
     ["[1, null]"], ["[1, 2]"]),
    ({"anyOf": [{"type": "integer"}, PERSON]}, ["3", '{"name": "x"}'], ['"x"', "{}"]),
    ({"oneOf": [CAT, DOG]}, ['{"kind": "cat"}', '{"kind": "dog", "a": 1}'], ['{"kind": "cow"}']),
    ({"oneOf": [{"$ref": "#/$defs/c"}, {"$ref": "#/$defs/d"}], "$defs": {"c": CAT, "d": DOG}},
     ['{"kind": "cat"}'], ["{}"]),
    ({"oneOf": [{"type": "integer", "maximum": 1}, {"type": "number", "minimum": 2}]},
     ["1", "2.5"], ["1.5"]),
    ({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"properties": {"b": {"type": "null"}}, "required": ["b"]}]},
     ['{"a": 1, "b": null}'], ['{"a": 1}', '{"b": null}']),
    ({"$ref": "#/definitions/list", "definitions": {"list": {
        "type": "object", "properties": {"next": {"$ref": "#/definitions/list"}},
        "additionalProperties": False}}}, ['{"next": {"next": {}}}'], ['{"next": 1}']),
    ({"$ref": "#here", "$defs": {"x": {"$anchor": "here", "type": "null"}}}, ["null"], ["1"]),
    ({"properties": {"a~/%": {"type": "null"}, "b": {"$ref": "#/properties/a~0~1%25"}},
      "type": "object"}, ['{"b": null}'], ['{"b": 1}']),
    ({"title": "t", "description": "d", "default": 1, "examples": [1], "$comment": "c",
      "deprecated": True, "readOnly": True, "x-order": 1, "type": "integer"}, ["1"], ['"x"']),
    ({"type": "integer", "uniqueItems": False, "unevaluatedProperties": True}, ["1"], ["x"]),
]  # fmt: skip

REFUSED: list[tuple[Any, str | None, str]] = [
    ({"not": {"type": "null"}}, "not", ""),
    ({"if": {}, "then": {}}, "if", ""),
    ({"properties": {"a/b": {"contains": {}}}}, "contains", "/properties/a~1b"),
    ({"items": {"uniqueItems": True}}, "uniqueItems", "/items"),
    ({"unevaluatedProperties": False}, "unevaluatedProperties", ""),
    ({"unevaluatedItems": False}, "unevaluatedItems", ""),
    ({"propertyNames": {"maxLength": 1}}, "propertyNames", ""),
    ({"dependentRequired": {"a": ["b"]}}, "dependentRequired", ""),
    ({"dependentSchemas": {"a": {}}, "type": "object"}, "dependentSchemas", ""),
    ({"dependencies": {"a": ["b"]}}, "dependencies", ""),
    ({"$dynamicRef": "#x"}, "$dynamicRef", ""),
    ({"anyOf": [{"type": "string"}, {"nullable": True}]}, "nullable", "/anyOf/1"),
    ({"maxlength": 1}, "maxlength", ""),
    ({"format": "unknown"}, "format", ""),
    ({"format": "idn-email"}, "format", ""),
    ({"pattern": "a(?=b)"}, "pattern", ""),
    ({"pattern": "(a)\\1"}, "pattern", ""),
    ({"patternProperties": {"(?!a)": {}}}, "patternProperties", ""),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf", ""),
    ({"oneOf": [{"minLength": 1}, {"type": "string"}]}, "oneOf", ""),
    ({"$ref": "https://example.com/a"}, "$ref", ""),
    ({"$ref": "#/$defs/none"}, "$ref", ""),
    ({"$ref": "#"}, "$ref", ""),
    ({"items": {"$id": "b"}}, "$id", "/items"),
    ({"$schema": "https://example.com/own"}, "$schema", ""),
    ({"type": "object", "minProperties": 2}, "minProperties", ""),
    ({"const": 2**53 + 1}, "const", ""),
    ({"enum": [{"a": ["\x00"]}]}, "enum", ""),
    ({"properties": {"\x01": {}}}, "properties", ""),
    ({"maximum": 1e30}, "maximum", ""),
    ({"multipleOf": 0}, "multipleOf", ""),
    ({"minItems": -1}, "minItems", ""),
    ({"minLength": 1.5}, "minLength", ""),
    ({"type": "text"}, "type", ""),
    ({"enum": []}, "enum", ""),
    ({"anyOf": []}, "anyOf", ""),
    ({"required": "a"}, "required", ""),
    ({"properties": []}, "properties", ""),
    ({"properties": {"a": 1}}, None, "/properties/a"),
    (False, None, ""),
    (7, None, ""),
    ({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}, "$ref", ""),
    ({"type": "array", "minItems": 1, "items": {"$ref": "#"}}, "$ref", ""),
]


@pytest.mark.parametrize(("schema", "valid", "invalid"), ENFORCED, ids=lambda v: str(v)[:60])
def test_what_is_enforced_is_enforced(
    compiler: GrammarCompiler,
    tokenizer: Tokenizer,
    schema: Any,
    valid: list[str],
    invalid: list[str],
) -> None:
    grammar = compiler.compile_json(schema, param="response_format")
    assert [text for text in valid if not accepts(grammar, tokenizer, text)] == []
    assert [text for text in invalid if accepts(grammar, tokenizer, text)] == []


@pytest.mark.parametrize(("schema", "keyword", "pointer"), REFUSED, ids=lambda v: str(v)[:60])
def test_what_cannot_be_enforced_is_refused_by_name(
    schema: Any, keyword: str | None, pointer: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        normalize(schema)
    assert (caught.value.keyword, caught.value.pointer) == (keyword, pointer)
    assert keyword is None or keyword in str(caught.value)


def test_a_misspelt_keyword_gets_a_suggestion() -> None:
    with pytest.raises(SchemaError, match="did you mean maxLength"):
        normalize({"maxLenght": 1})


def test_refusals_name_the_callers_field(compiler: GrammarCompiler) -> None:
    with pytest.raises(InvalidRequestError, match="uniqueItems at #/properties/a") as caught:
        compiler.compile_json(
            {"properties": {"a": {"uniqueItems": True}}}, param="response_format.json_schema.schema"
        )
    assert caught.value.param == "response_format.json_schema.schema"


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"patternProperties": {"a": {}, "b": {}}, "type": "object"}, "patternProperties"),
        ({"type": "object", "properties": {"a": {}}, "minProperties": 1}, "minProperties"),
        ({"type": "number", "multipleOf": 0.123456789}, "multipleOf"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, "nothing satisfies it"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "nothing satisfies it"),
        ({"type": "string", "pattern": "^a$", "maxLength": 0}, "nothing satisfies it"),
    ],
)
def test_what_the_engine_refuses_is_refused_in_our_words(
    compiler: GrammarCompiler, schema: Any, words: str
) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        compiler.compile_json(schema, param="x")


def test_the_engine_sees_only_what_was_looked_at() -> None:
    schema = {
        "x-guidance": {"lenient": True},
        "title": "t",
        "type": "object",
        "properties": {"title": {"type": "string", "description": "d"}},
    }
    assert normalize(schema)["$defs"]["d0"] == {
        "type": "object",
        "properties": {"title": {"type": "string"}},
    }


def test_keywords_that_read_each_other_stay_together() -> None:
    schema = {"additionalProperties": False, "allOf": [{}], "patternProperties": {"^a": {}}}
    assert list(normalize(schema)["$defs"]["d0"]) == [
        "patternProperties",
        "additionalProperties",
        "allOf",
    ]


def test_deep_schemas_are_refused_before_they_are_walked() -> None:
    nested: dict[str, Any] = {}
    for _ in range(100):
        nested = {"items": nested}
    with pytest.raises(SchemaError, match="deep"):
        normalize(nested)
    chain: dict[str, Any] = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(500)}
    with pytest.raises(SchemaError, match="deep"):
        normalize({"$ref": "#/$defs/d0", "$defs": {**chain, "d500": {}}})


@pytest.mark.parametrize(
    "schema",
    [
        {"const": "\ud800"},
        {"properties": {"\ud800": {}}},
        {"pattern": "\ud800"},
        {"pattern": "a{" + "9" * 5000 + "}"},
        {"$ref": "#/" + "9" * 5000},
        {"$ref": "#/allOf/" + "9" * 5000, "allOf": [{}]},
        {"minItems": 10**40},
        {"x" * 10_000: 1},
        {"maximum": float("nan")},
        {"maximum": float("inf")},
        {"enum": [float("nan")]},
        {"$schema": []},
        {"$ref": 1},
        {"$ref": "#/"},
        {"type": [[]]},
        {"format": []},
        {"items": 3},
        {"oneOf": {}},
    ],
    ids=lambda v: str(v)[:40].encode("ascii", "replace").decode(),
)
def test_odd_schemas_are_refused_in_few_words(compiler: GrammarCompiler, schema: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        compiler.compile_json(schema, param="x")
    assert len(str(caught.value)) < 700


def test_deep_constants_are_refused(compiler: GrammarCompiler) -> None:
    for depth in (40, 500, 5000):
        value: Any = 1
        for _ in range(depth):
            value = [value]
        with pytest.raises(InvalidRequestError, match="deep"):
            compiler.compile_json({"const": value}, param="x")
