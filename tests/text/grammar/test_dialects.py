"""What the grammar of a dialect lets a model write is what the reader of that dialect reads."""

import json
import random
from functools import cache
from itertools import pairwise
from typing import Any

import jsonschema_rs
import pytest

from flm.text.grammar import (
    Closing,
    CompiledGrammar,
    GrammarCompiler,
    Sandbox,
    ToolSignature,
    tool_syntax,
    vocabulary_of,
)
from flm.text.parsers import TOOL_DIALECTS, ToolDialect, tool_parser
from flm.text.pipeline import OutputPipeline
from flm.text.tokenizer import Tokenizer
from flm.types import TextDelta, ToolCallDelta
from tests.support.vocabularies import CHATML_MARKERS, byte_level_json, data_of
from tests.text.grammar.follow import accepts, ids_at_random
from tests.text.parsers.reading import read
from tests.text.parsers.writing import FORMS

MARKERS: dict[ToolDialect, tuple[str, ...]] = {
    "hermes": (),
    "qwen3.5": (),
    "llama3": ("<|python_tag|>",),
    "pythonic": ("<|python_tag|>",),
    "mistral": ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    "gemma4": ("<|tool_call>", "<tool_call|>", '<|"|>'),
    "lfm2": ("<|tool_call_start|>", "<|tool_call_end|>"),
    "deepseek": (
        *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>"),
        *("<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
    ),
    "harmony": (
        *("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"),
        *("<|end|>", "<|return|>", "<|call|>"),
    ),
}
ENDINGS = ("<tool_call>", "\n</parameter>\n", '<|"|>', "<|end|>", "<|tool_call>", "[TOOL_CALLS]")
TEMPLATES = {"mistral": ["", "[ARGS]"], "deepseek": ["", "```json"]}
VERSIONS = [
    (dialect, source, is_control)
    for dialect in TOOL_DIALECTS
    for source in TEMPLATES.get(dialect, [""])
    for is_control in ((True, False) if MARKERS[dialect] else (False,))
]
versions = pytest.mark.parametrize(("dialect", "source", "is_control"), VERSIONS)

SCHEMAS: dict[str, dict[str, Any] | None] = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"enum": ["c", "f", "null"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "exact": {"type": "boolean"},
        },
        "required": ["city", "unit"],
    },
    "1-plan": {
        "type": "object",
        "properties": {
            "code": {"type": "string", "pattern": "^[A-Z]{2}[0-9]+$", "maxLength": 5},
            "note": {"type": ["string", "null"], "minLength": 2},
            "by": {"$ref": "#/$defs/person"},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
            "size": {"anyOf": [{"type": "number", "maximum": 9}, {"const": "any"}]},
        },
        "required": ["note", "by"],
        "$defs": {
            "person": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                "required": ["name"],
            }
        },
    },
    "now": None,
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
ODD_KEYS = {
    "type": "object",
    "properties": {"a b": {"type": "string"}, "é:": {"type": "integer"}, "": {"type": "boolean"}},
    "required": ["a b", "é:", ""],
}


@cache
def tokenizer_of(dialect: ToolDialect, *, is_control: bool) -> Tokenizer:
    own = MARKERS[dialect] if is_control else ()
    return Tokenizer.from_data(data_of(byte_level_json((*CHATML_MARKERS, *own)), eos="<|im_end|>"))


def signatures(schemas: dict[str, Any], *, is_open: bool = False) -> list[ToolSignature]:
    return [ToolSignature(name, schema, "p", is_open) for name, schema in schemas.items()]


def compiled(
    sandbox: Sandbox, tokenizer: Tokenizer, dialect: ToolDialect, source: str, **options: Any
) -> CompiledGrammar:
    compiler = GrammarCompiler(vocabulary_of(tokenizer), sandbox)
    tools = options.pop("tools", signatures(SCHEMAS))
    options = {"at_most": 3, **options}
    return compiler.compile_tool_calls(tools, syntax=tool_syntax(dialect, source), **options)


def replies(
    grammar: CompiledGrammar, tokenizer: Tokenizer, *, number: int, seed: int = 0
) -> list[list[int]]:
    """Finished replies by random choice among what the masks allow."""
    found: list[list[int]] = []
    for attempt in range(number * 40):
        chance = random.Random(seed * 7919 + attempt)
        ids = ids_at_random(grammar, tokenizer, chance, endings=ENDINGS)
        found += [ids] if ids is not None else []
        if len(found) == number:
            return found
    raise AssertionError(f"only {len(found)} replies came to an end")


def said(tokenizer: Tokenizer, dialect: ToolDialect, ids: list[int], tools: Any) -> Any:
    """The reply as the server tells it: calls as (name, argument parts), and content."""
    pipeline = OutputPipeline(
        index=0, tokenizer=tokenizer, stops=(), parser=tool_parser(dialect, tools)
    )
    deltas = [delta for token_id in ids for delta in pipeline.feed(token_id)]
    deltas += pipeline.flush()
    assert pipeline.num_calls == pipeline.num_whole_calls
    calls: list[tuple[str, list[str]]] = []
    content = ""
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            if delta.name is not None:
                calls.append((delta.name, []))
            calls[-1][1].append(delta.arguments)
        elif isinstance(delta, TextDelta) and delta.channel == "content":
            content += delta.text
    return calls, content


def check_calls(calls: Any, schemas: dict[str, Any]) -> None:
    for name, parts in calls:
        value = json.loads("".join(parts))
        schema = schemas[name]
        assert isinstance(value, dict)
        jsonschema_rs.validate({"maxProperties": 0} if schema is None else schema, value)


@versions
def test_what_may_be_written_is_read_as_valid_calls(
    sandbox: Sandbox, dialect: ToolDialect, source: str, is_control: bool
) -> None:
    tokenizer = tokenizer_of(dialect, is_control=is_control)
    grammar = compiled(sandbox, tokenizer, dialect, source)
    names, counts = set(), set()
    for ids in replies(grammar, tokenizer, number=25):
        calls, content = said(tokenizer, dialect, ids, TOOLS)
        assert 1 <= len(calls) <= 3
        assert content == ""
        check_calls(calls, SCHEMAS)
        names |= {name for name, _ in calls}
        counts.add(len(calls))
    assert names == SCHEMAS.keys()
    assert counts == {1} if dialect == "harmony" else len(counts) > 1


@versions
def test_how_a_call_is_cut_does_not_matter(
    sandbox: Sandbox, dialect: ToolDialect, source: str, is_control: bool
) -> None:
    tokenizer = tokenizer_of(dialect, is_control=is_control)
    grammar = compiled(sandbox, tokenizer, dialect, source)
    chance = random.Random(1)
    for ids in replies(grammar, tokenizer, number=5, seed=1):
        text = tokenizer.decode(ids, skip_control=False)
        whole = read(tool_parser(dialect, TOOLS), [text])
        cuts = sorted({0, len(text), *(chance.randrange(len(text)) for _ in range(6))})
        pieces = [text[a:b] for a, b in pairwise(cuts)]
        assert read(tool_parser(dialect, TOOLS), pieces) == whole
        assert read(tool_parser(dialect, TOOLS), text) == whole
        check_calls([(name, [told]) for name, told, _ in whole.calls], SCHEMAS)


@versions
def test_free_text_never_turns_into_a_call_by_accident(
    sandbox: Sandbox, dialect: ToolDialect, source: str, is_control: bool
) -> None:
    tokenizer = tokenizer_of(dialect, is_control=is_control)
    grammar = compiled(sandbox, tokenizer, dialect, source, free_text=True, at_most=1)
    for ids in replies(grammar, tokenizer, number=25, seed=2):
        calls, _ = said(tokenizer, dialect, ids, TOOLS)
        assert len(calls) <= 1
        check_calls(calls, SCHEMAS)
    if dialect != "harmony":
        assert accepts(grammar, tokenizer, "Just text, <no> [call] {at} all.")
    for form, (name, write) in FORMS.items():
        if name == dialect:
            # By the characters of its markers, a model could get around the masks.
            text = write([("weather", {"city": 5})])
            assert not accepts(grammar, tokenizer, text), form


@versions
def test_open_tools_take_any_object(
    sandbox: Sandbox, dialect: ToolDialect, source: str, is_control: bool
) -> None:
    tokenizer = tokenizer_of(dialect, is_control=is_control)
    tools = signatures({"weather": {"not": {}}}, is_open=True)
    grammar = compiled(sandbox, tokenizer, dialect, source, tools=tools)
    for ids in replies(grammar, tokenizer, number=8, seed=3):
        calls, content = said(tokenizer, dialect, ids, TOOLS)
        assert calls
        assert content == ""
        check_calls(calls, {"weather": {"type": "object"}})


# Tags cannot hold such keys; they are refused.
@pytest.mark.parametrize(
    ("dialect", "source", "is_control"), [item for item in VERSIONS if item[0] != "qwen3.5"]
)
def test_keys_that_are_no_names(
    sandbox: Sandbox, dialect: ToolDialect, source: str, is_control: bool
) -> None:
    tokenizer = tokenizer_of(dialect, is_control=is_control)
    grammar = compiled(sandbox, tokenizer, dialect, source, tools=signatures({"now": ODD_KEYS}))
    for ids in replies(grammar, tokenizer, number=5, seed=4):
        calls, _ = said(tokenizer, dialect, ids, TOOLS)
        assert calls
        check_calls(calls, {"now": ODD_KEYS})


@versions
def test_no_call_is_begun_when_it_is_late(
    sandbox: Sandbox, dialect: ToolDialect, source: str, is_control: bool
) -> None:
    tokenizer = tokenizer_of(dialect, is_control=is_control)
    grammar = compiled(sandbox, tokenizer, dialect, source)
    end = tuple(tokenizer.encode(tool_syntax(dialect, source).section_end, control=True))
    written = [
        ids
        for seed in range(40)
        if (ids := ids_at_random(grammar, tokenizer, random.Random(seed), 150, ENDINGS,
                                 Closing(0, end)))
    ]  # fmt: skip
    assert len(written) > 5
    for ids in written:
        calls, _ = said(tokenizer, dialect, ids, TOOLS)
        assert len(calls) == 1
        check_calls(calls, SCHEMAS)
