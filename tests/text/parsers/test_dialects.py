"""Every dialect: what is read, under any cut, and what happens to what is no call."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.text.parsers import TOOL_DIALECTS, ToolDialect, detect_tool_dialect, tool_parser
from tests.text.parsers.reading import Read, arguments, calls, check_cuts, cuts, read, said, tool
from tests.text.parsers.writing import (
    FORMS,
    JSON_FORMS,
    SAMPLE,
    Calls,
    dumps,
    gemma4,
    lfm2,
    python_list,
    qwen_xml,
)

forms = pytest.mark.parametrize("form", FORMS)
STANDING_ALONE = ("llama3", "pythonic", "harmony")


# --- calls -------------------------------------------------------------------------------------


@forms
@given(cut=cuts)
def test_calls_are_read_under_any_cut(form: str, cut: list[int]) -> None:
    dialect, write = FORMS[form]
    result = check_cuts(dialect, write(SAMPLE), cut)
    assert result.values == SAMPLE
    assert result.content == result.reasoning == ""


@pytest.mark.parametrize("form", JSON_FORMS)
@given(items=calls, cut=cuts)
def test_any_arguments_in_json(form: str, items: Calls, cut: list[int]) -> None:
    dialect, write = JSON_FORMS[form]
    assert check_cuts(dialect, write(items), cut).values == items


@given(items=calls, cut=cuts)
def test_any_arguments_in_python(items: Calls, cut: list[int]) -> None:
    items = [(name, {f"k{i}": v for i, v in enumerate(values.values())}) for name, values in items]
    for dialect, write in (("pythonic", python_list), ("lfm2", lfm2)):
        assert check_cuts(dialect, write(items), cut).values == items  # type: ignore[arg-type]


@given(texts=st.lists(st.text(max_size=12), max_size=3), cut=cuts)
def test_any_text_in_gemmas_notation(texts: list[str], cut: list[int]) -> None:
    texts = [text.replace('<|"|>', "") for text in texts]
    items: Calls = [("note", {f"k{i}": text for i, text in enumerate(texts)})]
    assert check_cuts("gemma4", gemma4(items), cut).values == items


@given(text=st.text(max_size=12) | st.sampled_from(["</parameter>", "a</parameter>b", "null", "5"]))
def test_any_text_in_qwens_tags(text: str) -> None:
    items: Calls = [("weather", {"city": text})]
    assert check_cuts("qwen3.5", qwen_xml(items)).values == items


@pytest.mark.parametrize("form", JSON_FORMS)
def test_arguments_are_told_as_they_come(form: str) -> None:
    dialect, write = JSON_FORMS[form]
    text = write([("weather", {"city": "Paris is a city"})])
    result = said(dialect, text[: text.index(" is")])
    assert result.calls == [("weather", '{"city": "Paris', False)]


# In the others, calls stand alone.
@pytest.mark.parametrize("form", [form for form in FORMS if form not in STANDING_ALONE])
def test_text_around_calls_is_content(form: str) -> None:
    dialect, write = FORMS[form]
    result = check_cuts(dialect, f" I look.\n\n{write(SAMPLE)}\n")
    assert result.values == SAMPLE
    assert result.content == " I look."
    result = check_cuts(dialect, f"{write(SAMPLE[:1])}\nand {'b' * 3}")
    assert (result.values, result.content) == (SAMPLE[:1], "and bbb")


plain = st.text(st.characters(exclude_characters="<[{", exclude_categories=["Cs"]), max_size=9)


@pytest.mark.parametrize(
    "form", [form for form in FORMS if form not in (*STANDING_ALONE, "llama3 with its tag")]
)
@given(texts=st.lists(plain, min_size=2, max_size=4), cut=cuts)
def test_any_text_before_between_and_after_calls(
    form: str, texts: list[str], cut: list[int]
) -> None:
    dialect, write = FORMS[form]
    # Calls that follow one another would be one section in some dialects.
    texts = [texts[0], *(f"t{text}" for text in texts[1:])]
    parts = [texts[0]]
    for number, text in enumerate(texts[1:]):
        parts += [write([("now", {"n": number})]), text]
    result = check_cuts(dialect, "".join(parts), cut)
    assert result.values == [("now", {"n": number}) for number in range(len(texts) - 1)]
    assert "".join(result.content.split()) == "".join("".join(texts).split())
    assert result.reasoning == ""


OWN_MARKS = [
    *("<tool_call>", "</tool_call>", "<|tool_call>", "<tool_call|>", "<|tool_call_start|>"),
    *("<|tool_call_end|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>", "```"),
    *("<｜tool▁calls▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "<｜tool▁sep｜>"),
    *("<|channel|>final", "<|message|>", "<|call|>", "<|end|>", "<|start|>", "<|return|>"),
    *("<function=now>", "</function>", '{"name": "now"}', "[now()]", "now(a=1)]", "; {", "')]"),
    *("</think>", "<think>", "\\", '\\"', "\u2028", "👩‍👩‍👧", "e\u0301"),
]


@pytest.mark.parametrize("form", [form for form in FORMS if form != "qwen3.5"])
@given(marks=st.lists(st.sampled_from(OWN_MARKS), min_size=1, max_size=4), cut=cuts)
def test_marks_inside_a_string_are_text(form: str, marks: list[str], cut: list[int]) -> None:
    dialect, write = FORMS[form]
    items: Calls = [("note", {"text": " ".join(marks), "tags": marks}), ("now", {})]
    result = check_cuts(dialect, write(items), cut)
    assert (result.values, result.content, result.reasoning) == (items, "", "")


@given(marks=st.lists(st.sampled_from(OWN_MARKS), min_size=1, max_size=4), cut=cuts)
def test_marks_inside_qwens_values_are_text(marks: list[str], cut: list[int]) -> None:
    items: Calls = [("note", {"text": "a\nb ".join(marks)}), ("now", {})]
    assert check_cuts("qwen3.5", qwen_xml(items), cut).values == items


@forms
def test_a_marked_call_of_an_unknown_tool_is_a_call(form: str) -> None:
    """The client sees what the model wanted. Without a mark it could be an answer in JSON."""
    dialect, write = FORMS[form]
    items: Calls = [("nobody", {"a": 1})]
    result = check_cuts(dialect, write(items))
    if dialect in ("llama3", "pythonic"):
        assert result == Read(content=write(items))
    else:
        assert (result.values, result.content) == (items, "")


@forms
@given(length=st.integers(0, 500), cut=cuts)
def test_calls_before_an_end_that_is_missing_stay_whole(
    form: str, length: int, cut: list[int]
) -> None:
    dialect, write = FORMS[form]
    text = write(SAMPLE)[:length]
    result = check_cuts(dialect, text, cut)
    for (name, told, is_whole), (wanted, values) in zip(result.calls, SAMPLE, strict=False):
        assert name == wanted
        assert not is_whole or json.loads(told) == values
    assert all(is_whole for _, _, is_whole in result.calls[:-1])
    if not result.calls and form != "harmony":
        assert result.content == text


# --- what is no call ---------------------------------------------------------------------------


@forms
def test_a_reply_cut_off_loses_nothing(form: str) -> None:
    dialect, write = FORMS[form]
    text = write(SAMPLE[:1])
    for length in range(len(text)):
        result = check_cuts(dialect, text[:length], (length // 2, length // 3))
        if form == "harmony" and "<|message|>" not in text[:length]:
            continue  # a header alone says nothing
        if not result.calls:
            assert result.content == text[:length]
        else:
            ((name, partial, is_whole),) = result.calls
            assert name == "weather"
            assert dumps(SAMPLE[0][1]).startswith(partial) or is_whole


noise = st.lists(
    st.sampled_from(
        [
            *("<tool_call>", "</tool_call>", '{"name": "now"', ', "arguments": {', "}", "}", "{"),
            *("[TOOL_CALLS]", "[ARGS]", "[", "]", "now", "(", ")", "a=", "'", '"', "\\", "1", ","),
            *("<function=now>", "<parameter=a>", "</parameter>", "</function>", "call:now{", ":"),
            *("<|tool_call>", "<tool_call|>", '<|"|>', "<|python_tag|>", "<|tool_call_start|>"),
            *(
                "<|tool_call_end|>",
                "<｜tool▁calls▁begin｜>",
                "<｜tool▁call▁begin｜>",
                " ",
                "\n",
                "é",
            ),
            *(
                "<｜tool▁sep｜>",
                "function",
                "```json\n",
                "```",
                "<｜tool▁call▁end｜>",
                "<|channel|>",
            ),
            *("final", "analysis", "commentary to=functions.now", "<|message|>", "<|end|>"),
            *("<|start|>assistant", "<|call|>", "<|return|>", "{}", '{"a": 1}', ";", "null", "<|"),
        ]
    ),
    max_size=14,
).map("".join)


@pytest.mark.parametrize("dialect", TOOL_DIALECTS)
@given(text=noise, cut=cuts)
def test_noise_reads_the_same_under_any_cut(
    dialect: ToolDialect, text: str, cut: list[int]
) -> None:
    result = check_cuts(dialect, text, cut)
    for _, told, is_whole in result.calls:
        if is_whole:
            assert isinstance(json.loads(told), dict)


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("hermes", "<tool_call>\nnothing\n</tool_call>"),
        ("hermes", '<tool_call>{"arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": 5, "arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "now", "arguments": [1]}</tool_call>'),
        ("hermes", "Use <tool_call> tags."),
        ("hermes", "  <tool_ca"),
        ("llama3", '{"city": "Paris", "name": "now"}'),
        ("llama3", '{"name": "nobody", "parameters": {}}'),
        ("llama3", '{"name": "now"}'),
        ("llama3", 'Say {"name": "now", "parameters": {}}'),
        ("pythonic", "[1, 2, 3]"),
        ("pythonic", "[link](now())"),
        ("pythonic", "[nobody(a=1)]"),
        ("pythonic", "[now(a=open)]"),
        ("pythonic", "[now(1)]"),
        ("mistral", "[TOOL_CALLS]"),
        ("mistral", "[TOOL_CALLS] and so on"),
        ("gemma4", "<|tool_call>now{}<tool_call|>"),
        ("lfm2", "<|tool_call_start|>[now(<|tool_call_end|>"),
        ("deepseek", "<｜tool▁calls▁begin｜>now<｜tool▁calls▁end｜>"),
        ("qwen3.5", "<tool_call>\n<function=now>\nhm</function>\n</tool_call>"),
        ("qwen3.5", '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'),
        ("harmony", "Just text."),
    ],
)
def test_what_is_no_call_is_content_as_it_stands(dialect: ToolDialect, text: str) -> None:
    assert check_cuts(dialect, text) == Read(content=text)


@pytest.mark.parametrize("depth", [50, 5000])
@pytest.mark.parametrize("dialect", TOOL_DIALECTS)
def test_depth_is_harmless(dialect: ToolDialect, depth: int) -> None:
    for opener, closer in (("[", "]"), ('{"a":', "}"), ("(", ")"), ('{"function":', "}")):
        value = f"{opener * depth}1{closer * depth}"
        for begin in (
            f'<tool_call>{{"name": "now", "arguments": {{"a": {value}}}}}</tool_call>',
            f'[TOOL_CALLS]now[ARGS]{{"a": {value}}}',
            f"<|tool_call>call:now{{a:{value}}}<tool_call|>",
            f"<|tool_call_start|>[now(a={value})]<|tool_call_end|>",
            f"[now(a={value})]",
            value,
        ):
            said(dialect, begin)


# --- leniency ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name": "now", "arguments": "{\\"a\\": 1}"}', {"a": 1}),
        ('{"name": "now", "arguments": null}', {}),
        ('{"name": "now"}', {}),
        ('{"arguments": {"a": 1}, "name": "now"}', {"a": 1}),
        ('{"name": "now", "parameters": {"a": 1}}', {"a": 1}),
        ('{"id": 7, "name": "now", "arguments": {"a": 1}, "x": [{}]}', {"a": 1}),
        ('{"type": "function", "function": {"name": "now", "arguments": {"a": 1}}}', {"a": 1}),
        ('{"name": "now", "arguments": {"a": 1}', {"a": 1}),
        ('{"name": "now", "arguments": {"a": "x\ny\\d\\u00e9\\u12"}}', {"a": "x\ny\\dé\\u12"}),
    ],
)
def test_hermes_takes_what_leaves_no_doubt(text: str, expected: dict[str, Any]) -> None:
    result = check_cuts("hermes", f"<tool_call>{text}</tool_call>")
    assert (result.values, result.content) == ([("now", expected)], "")


def test_arguments_that_break_after_they_were_told_stay_in_the_call() -> None:
    text = '<tool_call>{"name": "now", "arguments": {"a": nope}}</tool_call>\nso'
    result = check_cuts("hermes", text)
    assert result.calls == [("now", '{"a": nope}}', False)]
    assert result.content == "so"
    text = '{"name": "now", "parameters": {"a" 1}} and more'
    assert check_cuts("llama3", text).calls == [("now", text[30:], False)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[now(a=True, b=None, c=-1.5, d=(1, 2), e={'x': [1,]})]",
         {"a": True, "b": None, "c": -1.5, "d": [1, 2], "e": {"x": [1]}}),
        ("[now(a=.5, b=+3, c=1_000, d=007, e='\\x41\\u00e9\\n\\q')]",
         {"a": 0.5, "b": 3, "c": 1000, "d": 7, "e": "Aé\n\\q"}),
        ("[ now( a = 1 , ) , ]", None),
        ("[now(a=12345678901234567890)]", {"a": 12345678901234567890}),
    ],
)  # fmt: skip
def test_python_literals(text: str, expected: dict[str, Any] | None) -> None:
    result = check_cuts("pythonic", text)
    if expected is not None:
        assert result.values == [("now", expected)]


def test_gemma_takes_bare_words() -> None:
    text = "<|tool_call>call:note{text: hi there ,tags:[a,1],meta:{k:true}}<tool_call|>"
    expected = {"text": "hi there", "tags": ["a", 1], "meta": {"k": True}}
    assert check_cuts("gemma4", text).values == [("note", expected)]


def test_qwen_values_follow_the_schema() -> None:
    items: Calls = [("weather", {"city": "5", "days": 5, "else": "x", "more": [1]})]
    assert check_cuts("qwen3.5", qwen_xml(items)).values == items
    text = "<tool_call><function=weather><parameter=days>True</parameter></function></tool_call>"
    assert check_cuts("qwen3.5", text).values == [("weather", {"days": True})]


# --- harmony -----------------------------------------------------------------------------------


def test_harmony_has_a_channel_for_everything() -> None:
    text = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>"
        "I look.<|end|><|start|>assistant to=functions.now<|channel|>commentary <|constrain|>json"
        '<|message|>{"a": "<|call|>"}<|call|>'
    )
    result = check_cuts("harmony", text)
    assert result == Read("I look.", "Hm.", [("now", '{"a": "<|call|>"}', True)])
    final = (
        "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant"
        "<|channel|>final<|message|>Yes<|return|>"
    )
    assert check_cuts("harmony", final) == Read("Yes", "Hm")
    assert check_cuts("harmony", "<|channel|>analysis<|message|>cut") == Read("", "cut")


# --- detection ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "dialect"),
    [
        ("", "hermes"),
        ("{{ '<tool_call>' }}", "hermes"),
        ("<tool_call>\n<function=example>\n<parameter=a>", "qwen3.5"),
        ("<|python_tag|>", "llama3"),
        ('{"name": function name, "parameters": dictionary} <|eot_id|>', "llama3"),
        ("<|python_tag|> [func_name1(params_name1=params_value1)]", "pythonic"),
        ("[AVAILABLE_TOOLS] [TOOL_CALLS]", "mistral"),
        ("<|tool_call>call:", "gemma4"),
        ("<|tool_list_start|>", "lfm2"),
        ("<｜tool▁calls▁begin｜>", "deepseek"),
        ("<|channel|>analysis to=functions.<|message|>", "harmony"),
    ],
)
def test_the_template_shows_the_dialect(source: str, dialect: ToolDialect) -> None:
    assert detect_tool_dialect(source) == dialect


@given(values=arguments)
def test_gemma_numbers_and_words_stay_as_written(values: dict[str, Any]) -> None:
    plain = {f"k{i}": v for i, v in enumerate(values.values()) if isinstance(v, int | float | bool)}
    assert check_cuts("gemma4", gemma4([("now", plain)])).values == [("now", plain)]


@pytest.mark.parametrize("dialect", ["pythonic", "lfm2"])
def test_keys_that_are_no_names_of_python(dialect: ToolDialect) -> None:
    for written, expected in (
        ('now(**{"a b": 1, "c": [true]})', {"a b": 1, "c": [True]}),
        ('now(x=1, **{"é": {}})', {"x": 1, "é": {}}),
        ("now(**{})", {}),
    ):
        text = f"[{written}]"
        whole = text if dialect == "pythonic" else f"<|tool_call_start|>{text}<|tool_call_end|>"
        assert check_cuts(dialect, whole).values == [("now", expected)]


@pytest.mark.parametrize("dialect", ["pythonic", "lfm2", "gemma4"])
def test_names_that_begin_with_a_digit(dialect: ToolDialect) -> None:
    calls: Calls = [("3d-view", {"a": 1})]
    assert read(tool_parser(dialect, [tool("3d-view")]), FORMS[dialect][1](calls)).values == calls


def test_tags_in_a_string_of_an_object_end_nothing() -> None:
    for text in ("</parameter>\n</function>", '\\"</parameter><parameter=x>', "</parameter>"):
        calls: Calls = [("note", {"tags": [text], "meta": {text: [text]}})]
        assert check_cuts("qwen3.5", qwen_xml(calls)).values == calls
