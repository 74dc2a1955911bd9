"""From wishes to grammars: what is kept, what is refused, and in which time."""

import json
import random
import threading
from typing import Any

import pytest

from flm.errors import InvalidRequestError
from flm.text.grammar import GrammarCompiler, Sandbox, Vocabulary, vocabulary_of
from flm.text.grammar.sandbox import GrammarError
from flm.text.tokenizer import Tokenizer
from tests.text.grammar.follow import accepts, written_at_random


def test_json_without_a_schema_is_an_object(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    grammar = compiler.compile_json(None, param="response_format")
    assert accepts(grammar, tokenizer, '{"a": [1, "x", null]}')
    assert not accepts(grammar, tokenizer, "[1]")


def test_blanks_are_bounded(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    grammar = compiler.compile_json(None, param="x")
    assert accepts(grammar, tokenizer, '{ "a":\n\t\t1 }')
    for blank in ("  ", "\n\n", "\n" + " " * 33, "\t"):
        assert not accepts(grammar, tokenizer, f'{{{blank}"a": 1}}')
    assert not accepts(grammar, tokenizer, " {}")
    assert not accepts(grammar, tokenizer, "{} ")


def test_choices(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    texts = ["a", "ab", 'q"\\/\n\té', "\x01\x7f"]
    grammar = compiler.compile_choice(texts, param="x")
    assert all(accepts(grammar, tokenizer, text) for text in texts)
    assert not accepts(grammar, tokenizer, "b")
    for wrong in ([], [""], ["a"] * 10_001):
        with pytest.raises(InvalidRequestError, match="choices"):
            compiler.compile_choice(wrong, param="x")


def test_grammars_in_lark_and_in_gbnf(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    lark = compiler.compile_grammar('start: "a" num\nnum: /[0-9]+/', param="x")
    gbnf = compiler.compile_grammar('root ::= "a" num\nnum ::= [0-9]+', param="x")
    for grammar in (lark, gbnf):
        assert accepts(grammar, tokenizer, "a12")
        assert not accepts(grammar, tokenizer, "a")


def test_control_tokens_by_name(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    grammar = compiler.compile_grammar('start: <|im_start|> "a"', param="x")
    matcher = grammar.matcher(vocab_size=tokenizer.vocab_size)
    start = tokenizer.control_id("<|im_start|>")
    assert start is not None
    matcher.accept(start)
    assert not accepts(grammar, tokenizer, "<|im_start|>a")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("start: foo", "unknown name"),
        ('root ::= "a', "GBNF"),
        ("", "start"),
        ('start: %json {"type": "object"}', "%json"),
        ('%llguidance {"allow_invalid_utf8": true}\nstart: "a"', "%llguidance"),
        ('start: a "b"\na[stop="x"]: /.*/', "stop"),
        ('start: a "b"\na[lazy, max_tokens=3]: /.*/', "max_tokens"),
        ("start: <|none|>", "special token"),
    ],
)
def test_wrong_grammars_are_refused(compiler: GrammarCompiler, text: str, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words) as caught:
        compiler.compile_grammar(text, param="structured_outputs.grammar")
    assert caught.value.param == "structured_outputs.grammar"


# --- hostile wishes ------------------------------------------------------------------------------

MANY = [f"p{i}" for i in range(20_000)]
HOSTILE_SCHEMAS: list[Any] = [
    {"type": "string", "allOf": [{"pattern": f"a.{{{i}}}b{i}"} for i in range(100)]},
    {"type": "object", "properties": {name: {"type": "string"} for name in MANY}},
    {"type": "integer", "allOf": [{"multipleOf": p} for p in (99991, 99989, 99971)]},
    {"allOf": [{"anyOf": [{"properties": {f"a{i}{j}": {}}} for j in range(5)]} for i in range(30)]},
    {"pattern": "(" * 50_000},
    {"const": "x" * 3_000_000},
]


@pytest.mark.parametrize("schema", HOSTILE_SCHEMAS, ids=lambda v: str(v)[:60])
def test_hostile_schemas_are_refused(compiler: GrammarCompiler, schema: Any) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be enforced"):
        compiler.compile_json(schema, param="x")


@pytest.mark.parametrize("pattern", ["(" * 100_000, "a(" * 100 + ")" * 100])
def test_hostile_patterns_are_refused(compiler: GrammarCompiler, pattern: str) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be enforced"):
        compiler.compile_regex(pattern, param="x")


@pytest.mark.parametrize(
    "pattern",
    ["(a{1000}){1000}", "(.*a){200}.{999}[^]{999}", "(x+x+)+y", "(.*a.{15}|.*b.{14}|.*c.{13})*"],
)
def test_patterns_that_explode_elsewhere_are_served(
    compiler: GrammarCompiler, tokenizer: Tokenizer, pattern: str
) -> None:
    grammar = compiler.compile_regex(pattern, param="x")
    written_at_random(grammar, tokenizer, random.Random(0), max_tokens=60)


@pytest.mark.parametrize(
    "text",
    [
        "start: " + "(" * 50_000 + '"a"' + ")" * 50_000,
        "start: A0\n" + "".join(f"A{i}: A{i + 1} A{i + 1}\n" for i in range(60)) + 'A60: "x"',
    ],
    ids=["deep", "exponential"],
)
def test_hostile_grammars_are_refused(compiler: GrammarCompiler, text: str) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be enforced"):
        compiler.compile_grammar(text, param="x")


def test_a_schema_of_ten_thousand_lines_is_served(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    group = {f"p{i}": {"type": "string", "description": "d"} for i in range(40)}
    schema = {
        "type": "object",
        "properties": {
            f"g{i}": {"type": "object", "properties": group, "required": list(group)}
            for i in range(60)
        },
    }
    assert accepts(compiler.compile_json(schema, param="x"), tokenizer, "{}")


def test_deep_json_is_refused(compiler: GrammarCompiler) -> None:
    nested: Any = {}
    for _ in range(100_000):
        nested = {"a": nested}
    with pytest.raises(InvalidRequestError, match="deep"):
        compiler.compile_json(nested, param="x")


def test_the_sandbox_lives_on_after_a_grammar_that_killed_it() -> None:
    box = Sandbox()
    patterns = {"type": "string", "allOf": [{"pattern": f"a.{{{i}}}b{i}"} for i in range(100)]}
    bad = json.dumps({"grammars": [{"json_schema": patterns}]})
    good = '{"grammars": [{"lark_grammar": "start: \\"a\\""}]}'
    with pytest.raises(GrammarError):
        box.check(bad, size=10, special=[])
    box.check(good, size=10, special=[])
    box.close()
    box.check(good, size=10, special=[(3, "<|x|>")])
    box.close()


def test_a_sandbox_that_takes_too_long_is_ended() -> None:
    box = Sandbox(timeout_s=0.001)
    with pytest.raises(GrammarError):
        box.check("{}", size=10, special=[])
    box.close()


# --- what is kept --------------------------------------------------------------------------------


class CountingSandbox(Sandbox):
    """Counts compilations and refuses none."""

    def __init__(self) -> None:
        super().__init__()
        self.num_checks = 0

    def check(self, grammar: str, *, size: int, special: list[tuple[int, str]]) -> None:
        self.num_checks += 1
        if "wrong" in grammar:
            raise GrammarError("wrong")


def test_grammars_are_compiled_once_and_the_oldest_forgotten(vocabulary: Vocabulary) -> None:
    box = CountingSandbox()
    compiler = GrammarCompiler(vocabulary, box, max_entries=2)
    first = compiler.compile_choice(["a"], param="x")
    assert compiler.compile_choice(["a"], param="y") is first
    compiler.compile_choice(["b"], param="x")
    assert compiler.compile_choice(["a"], param="x") is first
    compiler.compile_choice(["c"], param="x")
    assert compiler.compile_choice(["a"], param="x") is first
    assert box.num_checks == 3
    compiler.compile_choice(["b"], param="x")
    assert box.num_checks == 4


def test_refusals_are_kept_with_the_callers_own_field(vocabulary: Vocabulary) -> None:
    box = CountingSandbox()
    compiler = GrammarCompiler(vocabulary, box)
    for param in ("one", "other"):
        with pytest.raises(InvalidRequestError) as caught:
            compiler.compile_choice(["wrong"], param=param)
        assert caught.value.param == param
    assert box.num_checks == 1


def test_the_order_of_keys_is_part_of_a_schema(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    for first, second in (("a", "b"), ("b", "a")):
        schema = {"type": "object", "properties": {first: {}, second: {}}}
        grammar = compiler.compile_json(schema, param="x")
        assert accepts(grammar, tokenizer, f'{{"{first}": 1, "{second}": 1}}')
        assert not accepts(grammar, tokenizer, f'{{"{second}": 1, "{first}": 1}}')


def test_threads_may_compile_at_once(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    results: list[bool] = []

    def work(number: int) -> None:
        grammar = compiler.compile_json({"const": f"t{number % 3}"}, param="x")
        results.append(accepts(grammar, tokenizer, f'"t{number % 3}"'))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 12


def test_a_vocabulary_is_made_once(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    assert vocabulary_of(tokenizer) is vocabulary
