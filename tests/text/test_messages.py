from typing import Any

import pytest

from flm.errors import InvalidRequestError
from flm.text.messages import fold_system, merged, normalise, with_string_arguments


def test_text_parts_are_joined_without_a_separator() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b "}]
    assert normalise([{"role": "user", "content": parts}]) == [{"role": "user", "content": "ab "}]


@pytest.mark.parametrize("content", [None, [], ""])
def test_no_content_is_an_empty_string(content: Any) -> None:
    assert normalise([{"role": "assistant", "content": content}])[0]["content"] == ""
    assert normalise([{"role": "assistant"}])[0]["content"] == ""


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (3, "messages[0].content"),
        ({"type": "text"}, "messages[0].content"),
        ([{"type": "image_url", "image_url": {}}], "messages[0].content[0]"),
        ([{"type": "text", "text": "a"}, {"type": "text"}], "messages[0].content[1]"),
        ([{"type": "text", "text": 3}], "messages[0].content[0]"),
        ([None], "messages[0].content[0]"),
        ([["a"]], "messages[0].content[0]"),
        ([{"type": ["x"], "text": "a"}], "messages[0].content[0]"),
    ],
)
def test_other_content_is_refused_by_name(content: Any, where: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        normalise([{"role": "user", "content": content}])
    assert caught.value.param == where


@pytest.mark.parametrize("message", [{}, {"role": 3}, {"role": None}, "x", None, []])
def test_odd_messages_are_refused(message: Any) -> None:
    with pytest.raises(InvalidRequestError):
        normalise([message])


def test_developer_is_shown_as_system_and_merged_with_it() -> None:
    messages = [{"role": "system", "content": "a"}, {"role": "developer", "content": "b"}]
    assert normalise(messages) == [{"role": "system", "content": "a\n\nb"}]


def test_neighbours_of_one_role_are_merged() -> None:
    contents = [("user", "a"), ("user", "b"), ("assistant", "c"), ("assistant", "d"), ("user", "")]
    messages = [{"role": role, "content": text} for role, text in contents]
    assert [(m["role"], m["content"]) for m in normalise(messages)] == [
        ("user", "a\n\nb"),
        ("assistant", "c"),
        ("assistant", "d"),
        ("user", ""),
    ]


def test_an_empty_neighbour_adds_no_separator() -> None:
    assert merged([{"role": "user", "content": ""}, {"role": "user", "content": "a"}]) == [
        {"role": "user", "content": "a"}
    ]


def test_speakers_with_other_names_stay_apart() -> None:
    messages = [
        {"role": "user", "name": "Ann", "content": "a"},
        {"role": "user", "name": "Bob", "content": "b"},
        {"role": "user", "name": "Bob", "content": "c"},
    ]
    assert [m["content"] for m in normalise(messages)] == ["a", "b\n\nc"]


def test_reasoning_of_earlier_turns_is_left_out() -> None:
    keys = {"thinking": "x", "reasoning": "y", "reasoning_content": "z"}
    assert normalise([{"role": "assistant", "content": "<think>a</think>b", **keys}]) == [
        {"role": "assistant", "content": "<think>a</think>b"}
    ]
    assert "thinking" in normalise([{"role": "user", "content": "a", **keys}])[0]


def test_the_messages_of_the_caller_are_not_changed() -> None:
    call = {"function": {"name": "f", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": None, "tool_calls": [call], "name": None},
    ]
    before = repr(messages)
    normalise(messages)
    with_string_arguments(fold_system(normalise(messages)))
    assert repr(messages) == before


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ('{"a": 1}', {"a": 1}),
        ("{}", {}),
        ("[1]", "[1]"),
        ("not json", "not json"),
        ("", ""),
        ({"a": 1}, {"a": 1}),
        (None, None),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_arguments_become_objects_where_they_are(sent: Any, seen: Any) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": sent}}
    (message,) = normalise([{"role": "assistant", "content": "", "tool_calls": [call]}])
    assert message["tool_calls"][0]["function"]["arguments"] == seen


def test_odd_tool_calls_pass_unchanged() -> None:
    for calls in ([], [3], [{"function": None}], "x", [{"function": {"name": "f"}}]):
        (message,) = normalise([{"role": "assistant", "content": "", "tool_calls": calls}])
        assert message["tool_calls"] == calls


def test_arguments_as_text() -> None:
    call = {"function": {"name": "f", "arguments": {"ü": [1]}}}
    (message,) = with_string_arguments([{"role": "assistant", "content": "", "tool_calls": [call]}])
    assert message["tool_calls"][0]["function"]["arguments"] == '{"ü": [1]}'


def test_system_text_goes_to_the_user_message_that_follows() -> None:
    def fold(*pairs: tuple[str, str]) -> list[tuple[str, str]]:
        messages = [{"role": role, "content": text} for role, text in pairs]
        return [(m["role"], m["content"]) for m in fold_system(messages)]

    assert fold(("system", "s"), ("user", "u")) == [("user", "s\n\nu")]
    assert fold(("system", "s")) == [("user", "s")]
    assert fold(("user", "u"), ("system", "s")) == [("user", "u\n\ns")]
    assert fold(("user", "u"), ("assistant", "a"), ("system", "s"), ("user", "v")) == [
        ("user", "u"),
        ("assistant", "a"),
        ("user", "s\n\nv"),
    ]
    assert fold(("user", "u")) == [("user", "u")]
