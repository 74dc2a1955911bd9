"""Items become messages: what was said in one go is one message."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from flm.server.schemas.open_responses_items import AnyItem, as_item
from flm.server.schemas.open_responses_messages import messages_of

ITEMS: TypeAdapter[Any] = TypeAdapter(list[AnyItem])
USER = {"role": "user", "content": "ask"}
SAID = {"role": "assistant", "content": "said"}
THOUGHT = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "r"}

CALLED = {
    "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
    ]
}
ANSWER = {"role": "tool", "tool_call_id": "c", "content": "r"}


def messages(*items: dict[str, Any]) -> list[dict[str, Any]]:
    found = messages_of([as_item(item) for item in ITEMS.validate_python(list(items))])
    return [said.message for said in found]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([USER, SAID], [USER, SAID]),
        # Messages stay apart, as their writer set them.
        ([SAID, SAID], [SAID, SAID]),
        ([USER, USER], [USER, USER]),
        ([THOUGHT, SAID, CALL], [SAID | {"reasoning_content": "hm"} | CALLED]),
        (
            [THOUGHT, CALL],
            [{"role": "assistant", "content": "", "reasoning_content": "hm"} | CALLED],
        ),
        ([CALL, RESULT], [{"role": "assistant", "content": ""} | CALLED, ANSWER]),
        # Behind a call begins another message: the text came after it.
        ([CALL, SAID], [{"role": "assistant", "content": ""} | CALLED, SAID]),
        ([SAID, THOUGHT, SAID], [SAID, SAID | {"reasoning_content": "hm"}]),
        ([USER, CALL], [USER, {"role": "assistant", "content": ""} | CALLED]),
        ([RESULT, SAID], [ANSWER, SAID]),
    ],
)
def test_turns(items: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert messages(*items) == expected


def test_two_calls_are_of_one_message() -> None:
    (message,) = messages(CALL, CALL | {"call_id": "d"})
    assert [call["id"] for call in message["tool_calls"]] == ["c", "d"]


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (THOUGHT, "hm"),
        (THOUGHT | {"summary": [{"type": "summary_text", "text": "s"}]}, "hm"),
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]}, "s"),
        ({"type": "reasoning", "summary": [], "encrypted_content": "x"}, None),
    ],
)
def test_thoughts(item: dict[str, Any], text: str | None) -> None:
    (message,) = messages(item)
    assert message.get("reasoning_content") == text


@pytest.mark.parametrize(
    "content",
    [
        "ab",
        [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}],
        [
            {"type": "output_text", "text": "a", "annotations": []},
            {"type": "refusal", "refusal": "b"},
        ],
    ],
)
def test_contents(content: Any) -> None:
    for role in ("user", "assistant", "developer", "system"):
        assert messages({"role": role, "content": content}) == [{"role": role, "content": "ab"}]
    (result,) = messages(RESULT | {"output": content})
    assert result["content"] == "ab"
