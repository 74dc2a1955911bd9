"""Where the grammar of a reply begins, and what it holds besides calls."""

from collections.abc import Iterator
from typing import Any

import pytest

from flm.errors import InvalidRequestError
from flm.service.constraints import compiled, matcher
from flm.service.models import LoadedModel, Prepared
from flm.text.grammar import GrammarCompiler, GrammarMatcher, Sandbox, vocabulary_of
from flm.text.parsers import THINK, OutputStyle, ReasoningStyle, ToolDialect
from flm.text.parsers.styles import HARMONY
from flm.text.template import ChatTemplate
from flm.text.tokenizer import Tokenizer
from flm.types import (
    CallableTool,
    CallRules,
    GenerationRequest,
    OutputConstraint,
    Settings,
    ThinkMode,
)
from tests.support.vocabularies import CHATML_MARKERS, byte_level_json, data_of
from tests.text.grammar.follow import takes

CHANNELS = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>")
TOKENIZER = Tokenizer.from_data(
    data_of(byte_level_json((*CHATML_MARKERS, *CHANNELS)), eos="<|im_end|>")
)
EOS = TOKENIZER.eos_ids
SCHEMA = {"properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = CallableTool("f", SCHEMA, "tools[3].function.parameters", True)
FORCED = CallRules((TOOL,), 1, True, "tool_choice")
AUTO = CallRules((TOOL,), 1, False, "tools")
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
CHANNEL_CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}'
NUMBER = OutputConstraint("json", {"type": "integer"}, "response_format.json_schema.schema")


@pytest.fixture(scope="module")
def grammars() -> Iterator[GrammarCompiler]:
    box = Sandbox()
    yield GrammarCompiler(vocabulary_of(TOKENIZER), box)
    box.close()


class Info:
    vocab_size = None


def model(
    grammars: GrammarCompiler,
    think: ThinkMode = "none",
    reasoning: ReasoningStyle | None = None,
    tools: ToolDialect = "hermes",
) -> LoadedModel:
    nothing: Any = None
    info: Any = Info()
    return LoadedModel(
        info=info,
        tokenizer=TOKENIZER,
        template=ChatTemplate("{{ messages[0].content }}", TOKENIZER),
        engine=nothing,
        store=nothing,
        load_duration=0.0,
        chunk_lengths=nothing,
        output=OutputStyle(reasoning, tools),
        grammars=grammars,
        think=think,
        reads_effort=False,
    )


def request(calls: CallRules | None, **fields: Any) -> GenerationRequest:
    return GenerationRequest(
        id="r", model="m", settings=Settings(), sent={}, messages=(), calls=calls, **fields
    )


def start(
    model: LoadedModel, wanted: GenerationRequest, prompt: str = "<|im_start|>assistant\n"
) -> GrammarMatcher:
    prepared = Prepared(wanted, ((1,),), prompt, (100,), (), True, compiled(model, wanted))
    found = matcher(model, prepared, EOS, 100)
    assert found is not None
    return found


def follows(matcher: GrammarMatcher, text: str) -> bool:
    return takes(matcher, TOKENIZER.encode(text, control=True)) and matcher.is_complete


THOUGHT = "<think>\nfree </x> words\n</think>"
CASES: list[tuple[ThinkMode, dict[str, Any], str, bool, bool]] = [
    # how the model reasons, the request, the end of the prompt; may it think, may it call at once
    ("none", {}, "assistant\n", False, True),
    ("on", {}, "assistant\n", True, True),
    ("on", {"template_kwargs": {"enable_thinking": False}}, "assistant\n", False, True),
    ("off", {"settings": Settings(think=False)}, "assistant\n", False, True),
    ("off", {"settings": Settings(think=True)}, "assistant\n", True, True),
    ("always", {}, "assistant\n", True, True),
]


@pytest.mark.parametrize(("think", "fields", "prompt", "may_think", "may_call"), CASES)
def test_the_grammar_begins_behind_a_reasoning_block(
    grammars: GrammarCompiler,
    think: ThinkMode,
    fields: dict[str, Any],
    prompt: str,
    may_think: bool,
    may_call: bool,
) -> None:
    settings = {"settings": Settings(), **fields}
    wanted = GenerationRequest(id="r", model="m", sent={}, messages=(), calls=FORCED, **settings)
    thinker = model(grammars, think, THINK)
    assert follows(start(thinker, wanted, prompt), THOUGHT + CALL) == may_think
    assert follows(start(thinker, wanted, prompt), CALL) == may_call
    assert not follows(start(thinker, wanted, prompt), "Hm.")


def test_a_block_that_the_prompt_has_opened(grammars: GrammarCompiler) -> None:
    thinker = model(grammars, "always", THINK)
    for text in (f"hm\n</think>{CALL}", f"{CALL} is it?</think>{CALL}"):
        assert follows(start(thinker, request(FORCED), "assistant\n<think>\n"), text)
    assert not follows(start(thinker, request(FORCED), "assistant\n<think>\n"), CALL)


def test_an_answer_in_json_or_a_call(grammars: GrammarCompiler) -> None:
    wanted = request(AUTO, constraint=NUMBER)
    for text in ("17", CALL):
        assert follows(start(model(grammars), wanted), text)
    for text in ("seventeen", f"17 {CALL}", CALL.replace("1", "x")):
        assert not follows(start(model(grammars), wanted), text)
    forced = request(FORCED, constraint=NUMBER)
    assert follows(start(model(grammars), forced), CALL)
    assert not follows(start(model(grammars), forced), "17")


def test_free_text_or_a_strict_call(grammars: GrammarCompiler) -> None:
    for text in ("Hello.", CALL, f"I look.\n{CALL}", ""):
        assert follows(start(model(grammars), request(AUTO)), text)
    assert not follows(start(model(grammars), request(AUTO)), CALL.replace("1", '"x"'))


ANALYSIS = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>"


@pytest.mark.parametrize(
    ("calls", "constraint", "right", "wrong"),
    [
        (FORCED, None, [CHANNEL_CALL], [f"{FINAL}Hi", CALL]),
        (AUTO, None, [CHANNEL_CALL, f"{FINAL}Hi"], ["Hi", CHANNEL_CALL.replace("1", "x")]),
        (AUTO, NUMBER, [CHANNEL_CALL, f"{FINAL}17"], ["17", f"{FINAL}Hi"]),
        (None, NUMBER, [f"{FINAL}17"], ["17", f"{FINAL}Hi", CHANNEL_CALL]),
    ],
)
def test_channels(
    grammars: GrammarCompiler,
    calls: CallRules | None,
    constraint: OutputConstraint | None,
    right: list[str],
    wrong: list[str],
) -> None:
    thinker = model(grammars, "always", HARMONY, "harmony")
    wanted = request(calls, constraint=constraint)
    for before in ("", ANALYSIS):
        for text in right:
            assert follows(start(thinker, wanted), before + text), text
        for text in wrong:
            assert not follows(start(thinker, wanted), before + text), text


@pytest.mark.parametrize("calls", [FORCED, AUTO])
def test_who_is_blamed(grammars: GrammarCompiler, calls: CallRules) -> None:
    bad = CallableTool("f", {"not": {}}, TOOL.param, True)
    wanted = request(CallRules((bad,), 1, calls.is_forced, calls.param))
    with pytest.raises(InvalidRequestError, match="not at the root") as caught:
        compiled(model(grammars), wanted)
    assert caught.value.param == TOOL.param
    broken = OutputConstraint("json", {"not": {}}, NUMBER.param)
    if not calls.is_forced:
        with pytest.raises(InvalidRequestError, match="The schema") as caught:
            compiled(model(grammars), request(calls, constraint=broken))
        assert caught.value.param == NUMBER.param


def test_a_tool_that_nobody_forces_is_not_judged(grammars: GrammarCompiler) -> None:
    loose = CallableTool("f", {"not": {}}, TOOL.param, False)
    rules = CallRules((loose,), 1, False, "parallel_tool_calls")
    any_call = CALL.replace('{"a": 1}', '{"b": [1, {}]}')
    assert follows(start(model(grammars), request(rules)), any_call)
    assert not follows(start(model(grammars), request(rules)), f"{any_call}\n{any_call}")
