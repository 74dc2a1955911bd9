"""The messages of Anthropic's dialect as chat templates read them."""

from typing import Any

from flm.server.schemas.anthropic import MessagesBody
from tests.server.conftest import HELLO


def plain(*messages: dict[str, Any], **fields: Any) -> list[Any]:
    body = MessagesBody.model_validate({"max_tokens": 1, "messages": list(messages), **fields})
    return list(body.plain_messages)


def test_texts() -> None:
    cached = {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}
    parts = [{"type": "text", "text": "a", "citations": None}, cached]
    assert plain(
        {"role": "user", "content": parts},
        {"role": "system", "content": parts},
        {"role": "assistant", "content": parts},
        {"role": "user", "content": "c"},
        system=parts,
    ) == [
        {"role": "system", "content": "a\nb"},
        {"role": "user", "content": "ab"},
        {"role": "system", "content": "ab"},
        {"role": "assistant", "content": "ab"},
        {"role": "user", "content": "c"},
    ]
    assert plain(*HELLO, system=[]) == HELLO


def test_calls_and_thoughts() -> None:
    (message,) = plain(
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "Let me see."},
                {
                    "type": "tool_use",
                    "id": "toolu_1",
                    "name": "f",
                    "input": {"a": 1},
                    "caller": {"type": "direct"},
                },
            ],
        },
        continue_final_message=False,
    )
    function = {"name": "f", "arguments": {"a": 1}}
    assert message == {
        "role": "assistant",
        "content": "Let me see.",
        "reasoning_content": "Hm.",
        "tool_calls": [{"id": "toolu_1", "type": "function", "function": function}],
    }


def test_results() -> None:
    def result(**fields: Any) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": "toolu_1", **fields}

    words = {"type": "text", "text": "words"}
    found = plain(
        {
            "role": "user",
            "content": [
                result(content="21"),
                result(content=[words, words]),
                result(),
                result(content="No such city.", is_error=True),
                result(content="error: no", is_error=True),
                words,
                words,
                {"type": "mid_conv_system", "content": [words]},
                words,
            ],
        }
    )
    assert [(item["role"], item["content"]) for item in found] == [
        ("tool", "21"),
        ("tool", "wordswords"),
        ("tool", ""),
        ("tool", "Error: No such city."),
        ("tool", "error: no"),
        ("user", "wordswords"),
        ("system", "words"),
        ("user", "words"),
    ]
    assert {item["tool_call_id"] for item in found if item["role"] == "tool"} == {"toolu_1"}


def test_the_field_of_each_message() -> None:
    body = MessagesBody.model_validate(
        {
            "max_tokens": 1,
            "system": "s",
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "a"},
                        {"type": "text", "text": "b"},
                    ],
                },
                {"role": "system", "content": "c"},
            ],
        }
    )
    paths = [f"messages[{index}].content" for index in range(len(body.plain_messages))]
    assert [body.own_path(path) for path in paths] == [
        "system",
        "messages[0].content",
        "messages[0].content",
        "messages[1].content",
    ]
    assert body.own_path("max_tokens") == "max_tokens"
