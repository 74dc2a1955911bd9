import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.errors import InvalidRequestError, ModelFileError
from flm.text.template import ChatTemplate
from flm.text.tokenizer import Tokenizer
from flm.types import TokenizerData
from tests.support.vocabularies import data_of, sentencepiece_json
from tests.text.chats import CASES, CHATML_TOKENIZER, CHATS, turns
from tests.text.samples import TEXTS, plain_text

shapes = pytest.mark.parametrize("shape", CASES)
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The <b>weather</b> & more: é",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def _expected(shape: str, messages: list[dict[str, Any]], **settings: Any) -> list[int]:
    source, _, twin = CASES[shape]
    ids: list[int] = twin.apply_chat_template(
        messages, chat_template=source, tokenize=True, return_dict=False, **settings
    )
    return ids


# --- ordinary text is tokenised as transformers does it ----------------------------------------


@shapes
@pytest.mark.parametrize("text", TEXTS)
def test_ids_equal_transformers(shape: str, text: str) -> None:
    messages = turns(text, f"{text}!", f"again {text}")
    prompt = CHATS[shape].render(messages)
    assert list(prompt.ids) == _expected(shape, messages, add_generation_prompt=True)


@shapes
@given(texts=st.lists(plain_text, min_size=1, max_size=4), opens=st.booleans())
def test_ids_equal_transformers_on_any_text(shape: str, texts: list[str], opens: bool) -> None:
    messages = turns(*texts)
    prompt = CHATS[shape].render(messages, add_generation_prompt=opens)
    assert list(prompt.ids) == _expected(shape, messages, add_generation_prompt=opens)


@pytest.mark.real
@given(texts=st.lists(plain_text, min_size=1, max_size=3))
def test_smollm2_equals_transformers(
    texts: list[str], smollm2: Tokenizer, smollm2_data: TokenizerData, smollm2_twin: Any
) -> None:
    messages = turns(*texts)
    chat = ChatTemplate(smollm2_data.chat_template, smollm2)
    expected = smollm2_twin.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert list(chat.render(messages).ids) == expected


@pytest.mark.parametrize("shape", ["llama3", "qwen"])
def test_tools_and_calls_equal_transformers(shape: str) -> None:
    call = {"id": "c1", "type": "function"}
    arguments = {"city": "Zürich <&>", "days": 3}
    sent = '{"city": "Zürich <&>", "days": 3}'
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{**call, "function": {"name": "weather", "arguments": sent}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"sky": "blue"}'},
    ]
    prompt = CHATS[shape].render(messages, tools=[TOOL])
    messages[1] |= {"content": ""}
    messages[1]["tool_calls"][0]["function"]["arguments"] = arguments
    expected = _expected(shape, messages, tools=[TOOL], add_generation_prompt=True)
    assert list(prompt.ids) == expected
    assert "&lt;" not in prompt.text
    assert "Zürich" in prompt.text


def test_thinking_in_an_earlier_turn_is_cut_as_in_transformers() -> None:
    messages = turns("a", "<think>\nhm\n</think>\n\nyes", "b")
    prompt = CHATS["qwen"].render(messages)
    assert list(prompt.ids) == _expected("qwen", messages, add_generation_prompt=True)
    assert "hm" not in prompt.text


@pytest.mark.parametrize("enable", [True, False])
def test_variables_reach_the_template(enable: bool) -> None:
    prompt = CHATS["qwen"].render(turns("a"), kwargs={"enable_thinking": enable})
    assert prompt.text.endswith("assistant\n" if enable else "</think>\n\n")
    expected = _expected("qwen", turns("a"), enable_thinking=enable, add_generation_prompt=True)
    assert list(prompt.ids) == expected


# --- what a template may refuse ----------------------------------------------------------------


def test_a_template_without_a_system_role_gets_it_in_the_user_turn() -> None:
    prompt = CHATS["gemma"].render([{"role": "system", "content": "Be brief."}, *turns("Hi")])
    assert "user\nBe brief.\n\nHi<end_of_turn>" in prompt.text
    assert prompt.text.startswith("<s><start_of_turn>user")


def test_a_refusal_is_told_in_the_templates_words() -> None:
    with pytest.raises(InvalidRequestError, match="roles must alternate") as caught:
        CHATS["gemma"].render([*turns("a", "b"), {"role": "assistant", "content": "c"}])
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].nothing.more }}",
        "{{ messages[9].content }}",
        "{{ messages[0].content + 1 }}",
        "{{ messages[0].content * 1000000000 }}",
        "{{ 10 ** 10 ** 10 }}",
        "{% for i in range(10 ** 9) %}x{% endfor %}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages | tojson(indent=100000000) }}",
        "{{ 'a' | center(1000000000) }}",
        "{{ '%999999999d' % 3 }}",
        "{{ '{:999999999d}'.format(3) }}",
        "{{ '{:{}d}'.format(3, 999999999) }}",
        "{{ '%*d' % (999999999, 3) }}",
        "{{ '%999999999d' | format(3) }}",
        "{{ 'a'.ljust(999999999) }}",
        "{{ '1'.zfill(width=999999999) }}",
        "{{ [0] * 1000000000 }}",
        "{{ undefined_function() }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 1 / 0 }}",
        "{{ strftime_now(3) }}",
    ],
)
def test_any_failure_is_the_requests(source: str) -> None:
    chat = ChatTemplate(source, CHATML_TOKENIZER)
    with pytest.raises(InvalidRequestError) as caught:
        chat.render(turns("a"))
    assert caught.value.status == 400
    assert caught.value.param == "messages"


@pytest.mark.parametrize("name", ["messages", "tools", "bos_token", "add_generation_prompt"])
def test_variables_of_the_server_cannot_be_set(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=name) as caught:
        CHATS["chatml"].render(turns("a"), kwargs={name: "x"})
    assert caught.value.param == "chat_template_kwargs"


@pytest.mark.parametrize("value", ["x" * 10**5, [[]] * 1000, {"a": [1, None, True]}, -1, 1e308])
def test_odd_variables_do_no_harm(value: Any) -> None:
    chat = ChatTemplate("{{ v }}{{ v | tojson }}{{ v == messages }}", CHATML_TOKENIZER)
    prompt = chat.render(turns("a"), kwargs={"v": value})
    assert prompt.text == f"{value}{json.dumps(value)}False"


@pytest.mark.parametrize(
    "use",
    [
        "{% for i in range(v) %}x{% endfor %}",
        "{{ 'x' * v }}",
        "{{ [1] * v }}",
        "{{ 2 ** v }}",
        "{{ 'x' | indent(v) }}",
        "{{ 'x' | center(v) }}",
        "{{ 'x'.rjust(v) }}",
        "{{ messages | tojson(indent=v) }}",
        "{% for x in [1] | batch(v, 0) %}{{ x }}{% endfor %}",
        "{{ '%*d' % (v, 1) }}",
        "{{ '{:{}}'.format(1, v) }}",
    ],
)
def test_a_huge_number_is_refused_wherever_it_is_used(use: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        ChatTemplate(use, CHATML_TOKENIZER).render(turns("a"), kwargs={"v": 10**12})
    assert caught.value.param == "messages"


def test_a_deeply_nested_variable_is_refused_not_fatal() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    for source in ("{{ v | tojson }}", "{{ messages[0].content }}"):
        with pytest.raises(InvalidRequestError):
            ChatTemplate(source, CHATML_TOKENIZER).render(turns("a"), kwargs={"v": value})


def test_documents_may_be_given() -> None:
    chat = ChatTemplate("{{ documents | tojson }}", CHATML_TOKENIZER)
    assert chat.render(turns("a")).text == "null"
    assert chat.render(turns("a"), kwargs={"documents": [{"text": "t"}]}).text == '[{"text": "t"}]'


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="surrogate"):
        CHATS["chatml"].render(turns("\ud800"))


def test_a_broken_template_is_the_models() -> None:
    with pytest.raises(ModelFileError, match="chat template cannot be read"):
        ChatTemplate("{% if %}", CHATML_TOKENIZER)


# --- what templates expect ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("a\n  {% if true %}\nb\n  {% endif %}\nc", "a\nb\nc"),
        ("{% generation %}x{{ messages[0].content }}{% endgeneration %}", "xhi"),
        ("{% for i in range(5) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{{ {'a': 'é<>'} | tojson }}", '{"a": "é<>"}'),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{{ bos_token }}{{ eos_token }}", "<|endoftext|><|im_end|>"),
        ("{{ tools is none }}", "True"),
        ("{% set ns = namespace(x=1) %}{% set ns.x = 2 %}{{ ns.x }}", "2"),
        ("{{ '%03d' % 7 }}{{ '{:>3}'.format('a') }}{{ '%s' | format('b') }}", "007  ab"),
        ("{{ 'a'.ljust(3) }}{{ 'b' | center(3) }}.", "a   b ."),
        ("{{ 7 % 3 }}{{ 2 * 3 }}{{ 2 ** 3 }}{{ 'ab' * 2 }}", "168abab"),
    ],
)
def test_the_dialect(source: str, text: str) -> None:
    chat = ChatTemplate(source, CHATML_TOKENIZER)
    assert chat.render(turns("hi")).text == text


def test_a_tool_template_is_taken_for_tools() -> None:
    chat = ChatTemplate("plain", CHATML_TOKENIZER, named={"tool_use": "tools!"})
    assert chat.render(turns("a")).text == "plain"
    assert chat.render(turns("a"), tools=[TOOL]).text == "tools!"


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("{{ messages[1].tool_calls[0].function.arguments | tojson }}", '{"a": 1}'),
        ("{{ messages[1].tool_calls[0].function.arguments }}", '{"a":1}'),
        ("{{ 'x' + messages[1].tool_calls[0].function.arguments }}", 'x{"a":1}'),
        (
            "{% for k, v in messages[1].tool_calls[0].function.arguments.items() %}"
            "{{ k }}={{ v }}{% endfor %}",
            "a=1",
        ),
    ],
)
def test_arguments_come_as_the_template_wants_them(source: str, shown: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    messages = [*turns("q"), {"role": "assistant", "content": "", "tool_calls": [call]}]
    guarded = "{% if messages|length > 1 and messages[1].tool_calls %}" + source + "{% endif %}"
    text = ChatTemplate(guarded, CHATML_TOKENIZER).render(messages).text
    assert text.replace(" ", "") == shown.replace(" ", "")


# --- models without a template -----------------------------------------------------------------


def test_the_default_is_chatml_where_its_markers_are(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="flm"):
        chat = ChatTemplate(None, CHATML_TOKENIZER)
    assert "ChatML" in caplog.text
    prompt = chat.render(turns("a"))
    assert prompt.text == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
    assert len([i for i in prompt.ids if i in CHATML_TOKENIZER.control_ids]) == 3


def test_the_other_default_is_plain_and_begins_with_bos() -> None:
    data = data_of(sentencepiece_json(), bos="<s>", eos="</s>", add_bos=True)
    tokenizer = Tokenizer.from_data(data)
    prompt = ChatTemplate(None, tokenizer).render(turns("a<s>", "b", "c"))
    assert prompt.text == "user: a<s>\nassistant: b\nuser: c\nassistant:"
    assert prompt.ids[0] == tokenizer.bos_id
    assert prompt.ids.count(prompt.ids[0]) == 1
