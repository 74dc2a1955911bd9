"""The grammar room over the vocabulary of a real model."""

import json
import random
from collections.abc import Iterator

import pytest

from flm.text.grammar import GrammarCompiler, Sandbox, ToolSignature, vocabulary_of
from flm.text.grammar.syntax import HERMES
from flm.text.tokenizer import Tokenizer
from tests.text.grammar.follow import new_matcher, takes, written_at_random

pytestmark = pytest.mark.real

SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["small", "large"]},
        "sizes": {"type": "array", "items": {"type": "integer", "minimum": 3}, "maxItems": 3},
        "note": {"type": ["string", "null"], "maxLength": 8},
    },
    "required": ["kind", "sizes"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def compiler(smollm2: Tokenizer) -> Iterator[GrammarCompiler]:
    box = Sandbox()
    yield GrammarCompiler(vocabulary_of(smollm2), box)
    box.close()


def test_the_models_own_tokens_are_allowed(compiler: GrammarCompiler, smollm2: Tokenizer) -> None:
    value = {"kind": "large", "sizes": [3, 40], "note": "é 🙂"}
    for indent in (None, 2):
        text = json.dumps(value, ensure_ascii=False, indent=indent)
        matcher = new_matcher(compiler.compile_json(SCHEMA, param="x"), smollm2)
        assert takes(matcher, smollm2.encode(text))
        assert matcher.is_complete


def test_random_tokens_end_in_a_value_of_the_schema(
    compiler: GrammarCompiler, smollm2: Tokenizer
) -> None:
    grammar = compiler.compile_json(SCHEMA, param="x")
    texts = [written_at_random(grammar, smollm2, random.Random(seed)) for seed in range(20)]
    values = [json.loads(text) for text in texts if text is not None]
    assert len(values) >= 15
    for value in values:
        assert value["kind"] in ("small", "large")
        assert all(isinstance(size, int) and size >= 3 for size in value["sizes"])
        assert set(value) <= {"kind", "sizes", "note"}


def test_a_tool_call_in_the_models_own_tokens(
    compiler: GrammarCompiler, smollm2: Tokenizer
) -> None:
    tool = ToolSignature("look", {"properties": {"q": {"type": "string"}}}, "tools[0]")
    grammar = compiler.compile_tool_calls([tool], syntax=HERMES, free_text=True)
    call = '<tool_call>\n{"name": "look", "arguments": {"q": "a"}}\n</tool_call>'
    for text in (call, f"Let me look. {call}"):
        matcher = new_matcher(grammar, smollm2)
        assert takes(matcher, smollm2.encode(text))
        assert matcher.is_complete
