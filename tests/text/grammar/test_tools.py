"""Tool calls in the syntax of a model, with arguments that satisfy their schemas."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.errors import InvalidRequestError
from flm.text.grammar import CompiledGrammar, GrammarCompiler, ToolSignature, ToolSyntax
from flm.text.grammar.syntax import HERMES, LLAMA3_JSON, MISTRAL, QWEN3_5
from flm.text.tokenizer import Tokenizer
from tests.text.grammar.follow import accepts, cut_at_random, new_matcher, takes

WEATHER = ToolSignature(
    "get_weather",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"type": "string", "enum": ["c", "f"]},
            "days": {"type": "integer", "minimum": 1},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
    "tools[0].function.parameters",
)
NOW = ToolSignature("now", None, "tools[1].function.parameters")
TOOLS = (WEATHER, NOW)


def hermes(name: str, arguments: Any) -> str:
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{call}\n</tool_call>"


def compiled(compiler: GrammarCompiler, syntax: ToolSyntax, **options: Any) -> CompiledGrammar:
    return compiler.compile_tool_calls(TOOLS, syntax=syntax, **options)


PARIS = hermes("get_weather", {"city": "Paris", "days": 3})
CLOCK = hermes("now", {})


def test_hermes_calls(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    grammar = compiled(compiler, HERMES, at_most=2)
    assert accepts(grammar, tokenizer, PARIS)
    assert accepts(grammar, tokenizer, CLOCK)
    assert accepts(grammar, tokenizer, f"{CLOCK}\n{PARIS}")
    for wrong in (
        "",
        "Hi",
        f"Hi {CLOCK}",
        f"{CLOCK}\n{CLOCK}\n{CLOCK}",
        f"{CLOCK} Bye",
        hermes("later", {}),
        hermes("now", {"a": 1}),
        hermes("get_weather", {}),
        hermes("get_weather", {"city": "x", "unit": "k"}),
        hermes("get_weather", {"city": "x", "days": 0}),
    ):
        assert not accepts(grammar, tokenizer, wrong)


@pytest.mark.parametrize("at_most", [1, 3, None])
def test_the_number_of_calls(
    compiler: GrammarCompiler, tokenizer: Tokenizer, at_most: int | None
) -> None:
    forced = compiled(compiler, HERMES, at_most=at_most)
    free = compiled(compiler, HERMES, at_most=at_most, free_text=True)
    for number in range(6):
        text = "\n".join([CLOCK] * number)
        is_few = at_most is None or number <= at_most
        assert accepts(forced, tokenizer, text) == (number > 0 and is_few)
        assert accepts(free, tokenizer, text) == is_few


def test_free_text_may_come_first(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    free = compiled(compiler, HERMES, free_text=True)
    assert accepts(free, tokenizer, f"Let me see.\n{PARIS}")
    assert accepts(free, tokenizer, "No tool < tool_call> is needed.")
    assert accepts(free, tokenizer, f"Hm <tool {PARIS}\n{CLOCK}")
    assert not accepts(free, tokenizer, "<tool_call>")
    assert not accepts(free, tokenizer, "I write <tool_call>x</tool_call>")


def test_an_answer_may_stand_in_the_place_of_calls(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    for answer, right in (
        (("json", {"type": "integer"}), "5"),
        (("json", None), "{}"),
        (("regex", "a+"), "aaa"),
        (("choice", ("yes", "no")), "no"),
    ):
        grammar = compiled(compiler, HERMES, answer=answer)
        assert accepts(grammar, tokenizer, right)
        assert accepts(grammar, tokenizer, PARIS)
        assert not accepts(grammar, tokenizer, "Hm")
        assert not accepts(grammar, tokenizer, f"{right} {PARIS}")


def test_llama_calls(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    grammar = compiled(compiler, LLAMA3_JSON)
    one = '{"name": "get_weather", "parameters": {"city": "x"}}'
    assert accepts(grammar, tokenizer, one)
    assert accepts(grammar, tokenizer, f"{one}; {one}")
    assert not accepts(grammar, tokenizer, '{"name": "now", "parameters": []}')


def test_mistral_calls_begin_with_a_control_token(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    body = '[{"name": "now", "arguments": {}}, {"name": "now", "arguments": {}}]'
    for free_text in (False, True):
        grammar = compiled(compiler, MISTRAL, at_most=2, free_text=free_text)
        matcher = new_matcher(grammar, tokenizer)
        assert takes(matcher, tokenizer.encode(f"[TOOL_CALLS]{body}", control=True))
        assert matcher.is_complete
        assert not accepts(grammar, tokenizer, f"[TOOL_CALLS]{body}")
    matcher = new_matcher(grammar, tokenizer)
    assert takes(matcher, tokenizer.encode(f"Sure[TOOL_CALLS]{body}", control=True))


def tagged(*parameters: tuple[str, str], name: str = "get_weather") -> str:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


def test_tagged_calls(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    grammar = compiled(compiler, QWEN3_5, at_most=2)
    assert accepts(grammar, tokenizer, tagged(("city", 'New\n"York" </x>'), ("days", "3")))
    assert accepts(grammar, tokenizer, tagged(("city", ""), ("unit", "c")))
    assert accepts(grammar, tokenizer, tagged(name="now"))
    assert accepts(grammar, tokenizer, "\n".join([tagged(name="now")] * 2))
    for wrong in (
        tagged(),
        tagged(("days", "3")),
        tagged(("city", "x"), ("days", "many")),
        tagged(("city", "x"), ("unit", "k")),
        tagged(("city", "x"), ("planet", "Mars")),
        tagged(name="later"),
    ):
        assert not accepts(grammar, tokenizer, wrong)


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "properties": {"a": {"type": ["string", "integer"], "enum": [1]}}},
        {"type": "object", "properties": {"a b": {"type": "string"}}},
        {"type": "object", "minProperties": 1},
        {"type": "object", "required": ["a"]},
    ],
)
def test_what_tags_cannot_hold_is_refused(
    compiler: GrammarCompiler, parameters: dict[str, Any]
) -> None:
    tool = ToolSignature("f", parameters, "tools[0].function.parameters")
    with pytest.raises(InvalidRequestError) as caught:
        compiler.compile_tool_calls([tool], syntax=QWEN3_5)
    assert caught.value.param == "tools[0].function.parameters"


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"type": "object", "properties": {"a": {"not": {}}}}, "not at #/properties/a"),
        ({"type": "array"}, "object"),
        ({"properties": {"a": {"pattern": "(?!x)"}}}, "look-ahead"),
    ],
)
def test_a_schema_that_cannot_be_enforced_is_blamed_on_its_tool(
    compiler: GrammarCompiler, parameters: dict[str, Any], words: str
) -> None:
    tools = [NOW, ToolSignature("f", parameters, "tools[7].function.parameters")]
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match=words) as caught:
            compiler.compile_tool_calls(tools, syntax=HERMES)
        assert caught.value.param == "tools[7].function.parameters"


def test_references_in_parameters(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    place = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
    parameters = {"properties": {"at": {"$ref": "#/$defs/place"}}, "$defs": {"place": place}}
    tool = ToolSignature("go", parameters, "p")
    for syntax, right, wrong in (
        (HERMES, hermes("go", {"at": {"x": 1}}), hermes("go", {"at": {}})),
        (QWEN3_5, tagged(("at", '{"x": 1}'), name="go"), tagged(("at", "{}"), name="go")),
    ):
        grammar = compiler.compile_tool_calls([tool], syntax=syntax)
        assert accepts(grammar, tokenizer, right)
        assert not accepts(grammar, tokenizer, wrong)


@given(
    city=st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=10),
    days=st.integers(1, 10**6),
    seed=st.integers(0, 2**32),
)
def test_every_way_to_cut_a_call_in_tokens_is_allowed(
    compiler: GrammarCompiler, tokenizer: Tokenizer, city: str, days: int, seed: int
) -> None:
    chance = random.Random(seed)
    arguments = json.dumps({"city": city, "days": days}, ensure_ascii=False)
    call = f'<tool_call>\n{{"name": "get_weather", "arguments": {arguments}}}\n</tool_call>'
    texts = {HERMES: f"{call}\n{CLOCK}", QWEN3_5: tagged(("city", city), ("days", str(days)))}
    for syntax, text in texts.items():
        if "</parameter>" not in city:
            matcher = new_matcher(compiled(compiler, syntax), tokenizer)
            assert takes(matcher, cut_at_random(tokenizer, text, chance)), text
            assert matcher.is_complete
