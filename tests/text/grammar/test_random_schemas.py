"""Whatever a matcher lets through parses and validates, for schemas that nobody chose."""

import json
import random
from typing import Any

import jsonschema_rs
from hypothesis import given
from hypothesis import strategies as st

from flm.errors import InvalidRequestError
from flm.text.grammar import GrammarCompiler
from flm.text.tokenizer import Tokenizer
from tests.text.grammar.follow import cut_at_random, new_matcher, takes, written_at_random

NAMES = st.sampled_from(["a", "b", "ab", "é", 'q"', "n\n"])
PATTERNS = st.sampled_from(["^a", "b$", "^[a-c]{1,3}$", "x|y", r"^\d+$", "^.*$", r"^\S+$"])
BOUNDS = st.one_of(
    st.integers(-200, 200), st.sampled_from([0.5, -1.25, 3.75, 1e-3, 123456.789, 2**40])
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-99, 99), st.sampled_from([0.5, 2.0]), NAMES),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(NAMES, inner, max_size=2)),
    max_leaves=3,
)
NUMBERS = st.fixed_dictionaries(
    {"type": st.sampled_from(["integer", "number"])},
    optional={
        "minimum": BOUNDS,
        "maximum": BOUNDS,
        "exclusiveMinimum": BOUNDS,
        "exclusiveMaximum": BOUNDS,
        "multipleOf": st.sampled_from([1, 3, 7, 0.5, 0.25]),
    },
)
STRINGS = st.fixed_dictionaries(
    {"type": st.just("string")},
    optional={
        "minLength": st.integers(0, 3),
        "maxLength": st.integers(0, 6),
        "pattern": PATTERNS,
        "format": st.sampled_from(["date", "time", "ipv4", "uuid", "email", "hostname"]),
    },
)
PLAIN = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["null", "boolean"])}),
    NUMBERS,
    STRINGS,
    st.fixed_dictionaries({"enum": st.lists(VALUES, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"const": VALUES}),
    st.just({}),
    st.just(True),
)


def compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    options = st.lists(inner, min_size=1, max_size=3)
    objects = st.fixed_dictionaries(
        {"type": st.just("object")},
        optional={
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": st.one_of(st.just(False), inner),
            "patternProperties": st.dictionaries(PATTERNS, inner, max_size=1),
            "minProperties": st.integers(0, 3),
            "maxProperties": st.integers(0, 3),
        },
    )
    arrays = st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={
            "items": st.one_of(st.just(False), inner),
            "prefixItems": options,
            "minItems": st.integers(0, 3),
            "maxItems": st.integers(0, 3),
        },
    )
    mixed = st.fixed_dictionaries(
        {},
        optional={"anyOf": options, "allOf": options, "oneOf": options, "type": st.just("object")},
    )
    merged = st.tuples(st.one_of(objects, arrays, mixed), mixed).map(lambda p: {**p[0], **p[1]})
    return st.one_of(objects, arrays, mixed, merged)


SCHEMAS = st.recursive(PLAIN, compound, max_leaves=6)


@given(schema=SCHEMAS, seed=st.integers(0, 2**32))
def test_what_is_let_through_validates(
    compiler: GrammarCompiler, tokenizer: Tokenizer, schema: Any, seed: int
) -> None:
    try:
        grammar = compiler.compile_json(schema, param="x")
    except InvalidRequestError:
        return
    chance = random.Random(seed)
    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    for _ in range(3):
        text = written_at_random(grammar, tokenizer, chance)
        if text is None:
            continue
        value = json.loads(text)
        assert validator.is_valid(value), text
        matcher = new_matcher(grammar, tokenizer)
        assert takes(matcher, cut_at_random(tokenizer, text, chance))
        assert matcher.is_complete
