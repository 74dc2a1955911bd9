"""The keywords of JSON Schema, by what becomes of them."""

from flm.text.grammar.formats import FORMATS

ANNOTATIONS = frozenset(
    {
        "$anchor", "$comment", "$defs", "$dynamicAnchor", "$id", "$recursiveAnchor", "$schema",
        "contentEncoding", "contentMediaType", "contentSchema", "default", "definitions",
        "deprecated", "description", "discriminator", "example", "examples", "externalDocs", "id",
        "readOnly", "title", "writeOnly", "xml",
    }
)  # fmt: skip
"""They assert nothing, so they are passed over without a word. So is every ``x-`` keyword."""

NOT_ENFORCED = frozenset(
    {
        "$dynamicRef", "$recursiveRef", "$vocabulary", "contains", "dependencies",
        "dependentRequired", "dependentSchemas", "else", "if", "maxContains", "minContains", "not",
        "nullable", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
        "uniqueItems",
    }
)  # fmt: skip
"""Assertions that a grammar cannot hold."""

COUNTS = frozenset(
    {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}
)
BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
SUBSCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
SUBSCHEMAS = frozenset({"items", "additionalItems", "additionalProperties"})
OTHERS = frozenset(
    {"$ref", "const", "enum", "format", "pattern", "patternProperties", "properties", "required",
     "type"}
)  # fmt: skip
ENFORCED = COUNTS | BOUNDS | SUBSCHEMA_LISTS | SUBSCHEMAS | OTHERS
KNOWN = ENFORCED | NOT_ENFORCED | ANNOTATIONS

TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
FORMAT_NAMES = tuple(sorted(FORMATS))

DRAFTS = frozenset(
    {
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema",
        "http://json-schema.org/draft-06/schema",
        "http://json-schema.org/draft-04/schema",
        "http://json-schema.org/schema",
    }
)


def is_vacuous(keyword: str, value: object, schema: dict[str, object]) -> bool:
    """True when an assertion that cannot be enforced asserts nothing here."""
    if keyword in ("uniqueItems", "nullable"):
        return value is False
    if keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
        return value == {}
    if keyword in ("propertyNames", "unevaluatedItems", "unevaluatedProperties"):
        return value is True or value == {}
    if keyword == "not":
        return value is False
    if keyword in ("minContains", "maxContains"):
        return "contains" not in schema
    if keyword in ("then", "else"):
        return "if" not in schema
    return keyword == "if" and "then" not in schema and "else" not in schema
