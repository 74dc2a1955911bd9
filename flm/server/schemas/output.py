"""Fields that constrain what the model may write: ``response_format``, ``structured_outputs``."""

from collections.abc import Iterator, Mapping
from typing import Any

from flm.errors import InvalidRequestError
from flm.server.schemas.types import unread_keys
from flm.types import OutputConstraint

KINDS = ("json", "regex", "choice", "grammar")
GUIDED = {f"guided_{kind}": kind for kind in KINDS}
"""Older names of the members of ``structured_outputs``."""

FORMAT_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {
            "type": "object",
            "required": ["type"],
            "properties": {"type": {"const": "text"}},
        },
        {
            "type": "object",
            "required": ["type"],
            "properties": {
                "type": {"const": "json_object"},
                "schema": {"type": ["object", "null"]},
            },
        },
        {
            "type": "object",
            "required": ["type", "json_schema"],
            "properties": {
                "type": {"const": "json_schema"},
                "json_schema": {
                    "type": "object",
                    "required": ["schema"],
                    "properties": {
                        "name": {"type": ["string", "null"]},
                        "description": {"type": ["string", "null"]},
                        "strict": {"type": ["boolean", "null"]},
                        "schema": {"type": "object"},
                    },
                },
            },
        },
        {"type": "null"},
    ]
}
CONSTRAINT_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {
            "type": "object",
            "additionalProperties": {"type": "null"},
            "properties": {
                "json": {"type": ["object", "boolean", "null"]},
                "regex": {"type": ["string", "null"]},
                "choice": {"type": ["array", "null"], "items": {"type": "string"}, "minItems": 1},
                "grammar": {"type": ["string", "null"]},
            },
        },
        {"type": "null"},
    ]
}


def format_constraint(value: Any) -> OutputConstraint | None:
    """What ``response_format`` asks for; None for text.

    Raises:
        InvalidRequestError: it has another shape; ``param`` is the dotted path.
    """
    if value is None:
        return None
    _require(isinstance(value, dict), "response_format", "must be an object with a type")
    match value.get("type"):
        case "text":
            return None
        case "json_object":
            return _object_constraint(value.get("schema"))
        case "json_schema":
            return schema_constraint(value.get("json_schema"), "response_format.json_schema")
    raise InvalidRequestError(
        "response_format.type must be 'text', 'json_object' or 'json_schema'.",
        param="response_format.type",
    )


def _object_constraint(schema: Any) -> OutputConstraint:
    """Any JSON object, or as llama-server has it, one of a schema that stands beside the type."""
    if schema is None or schema == {}:
        return OutputConstraint("json", None, "response_format")
    path = "response_format.schema"
    _require(isinstance(schema, dict), path, "must be a JSON Schema object")
    return OutputConstraint("json", schema, path)


def schema_constraint(value: Any, path: str) -> OutputConstraint:
    """The JSON that an object with name, description, strict and schema, at ``path``, asks for.

    Raises:
        InvalidRequestError: it has another shape.
    """
    _require(isinstance(value, dict), path, "must be an object with a schema")
    for name, kind in (("name", str), ("description", str), ("strict", bool)):
        own = value.get(name)
        _require(own is None or isinstance(own, kind), f"{path}.{name}", f"must be a {_word(kind)}")
    schema = value.get("schema")
    _require(isinstance(schema, dict), f"{path}.schema", "must be a JSON Schema object")
    return OutputConstraint("json", schema, f"{path}.schema")


_FORMAT_KEYS = {"json_object": ("type", "schema"), "json_schema": ("type", "json_schema")}
_SCHEMA_KEYS = ("name", "description", "strict", "schema")


def unread_in_format(value: Any) -> Iterator[tuple[str, Any]]:
    """What stands in a ``response_format`` that ``format_constraint`` accepts, and has no effect:
    dotted paths and values."""
    if value is None:
        return
    yield from unread_keys(value, _FORMAT_KEYS.get(value["type"], ("type",)), "response_format")
    if value["type"] == "json_schema":
        yield from unread_keys(value["json_schema"], _SCHEMA_KEYS, "response_format.json_schema")


def structured_constraint(value: Any) -> OutputConstraint | None:
    """What ``structured_outputs`` asks for.

    Raises:
        InvalidRequestError: it is no object with exactly one of json, regex, choice and grammar.
    """
    if value is None:
        return None
    _require(isinstance(value, dict), "structured_outputs", "must be an object")
    given = {name: own for name, own in value.items() if own is not None}
    unknown = [name for name in given if name not in KINDS]
    if unknown or len(given) != 1:
        raise InvalidRequestError(
            "structured_outputs must have exactly one of json, regex, choice and grammar.",
            param=f"structured_outputs.{unknown[0]}" if unknown else "structured_outputs",
        )
    (kind, own), *_ = given.items()
    return _constraint(kind, own, f"structured_outputs.{kind}")


def guided_constraints(extra: Mapping[str, Any]) -> list[OutputConstraint]:
    """What the ``guided_*`` fields among the unknown ones ask for."""
    return [
        _constraint(kind, extra[name], name)
        for name, kind in GUIDED.items()
        if extra.get(name) is not None
    ]


def _constraint(kind: str, value: Any, param: str) -> OutputConstraint:
    match kind:
        case "json":
            _require(isinstance(value, dict | bool), param, "must be a JSON Schema")
            return OutputConstraint("json", value, param)
        case "choice":
            texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
            _require(texts and bool(value), param, "must be a non-empty array of strings")
            return OutputConstraint("choice", tuple(value), param)
        case "regex":
            _require(isinstance(value, str), param, "must be a string")
            return OutputConstraint("regex", value, param)
    _require(isinstance(value, str), param, "must be a string")
    return OutputConstraint("grammar", value, param)


def _require(condition: bool, param: str, what: str) -> None:
    if not condition:
        raise InvalidRequestError(f"{param} {what}.", param=param)


def _word(kind: type) -> str:
    return "boolean" if kind is bool else "string"
