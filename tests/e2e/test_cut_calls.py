"""Forced calls that max_tokens cuts off: never a beginning of markup as text."""

import httpx
import pytest

from tests.support.replies import CHAT, streamed, whole

TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "enum": ["tree", "house"]}},
            "required": ["word"],
        },
    },
}


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "look_up"}}]
)
def test_a_forced_call_is_cut_off_without_a_trace_in_the_text(
    client: httpx.Client, choice: object
) -> None:
    asked = {"messages": [{"role": "user", "content": "Hello"}], "tools": [TOOL], "seed": 7}
    reasons = set()
    for max_tokens in (1, 2, 3, 5, 8, 13, 21, 34):
        body = {**asked, "tool_choice": choice, "max_tokens": max_tokens}
        (one,) = whole(client, **body).choices
        (other,) = streamed(client, **body).choices
        assert (one.text, other.text) == ("", "")
        assert one.finish_reason == other.finish_reason
        reasons.add(one.finish_reason)
    assert "length" in reasons


def test_the_plain_reply_has_a_string_where_nothing_came(client: httpx.Client) -> None:
    body = {
        "messages": [{"role": "user", "content": "Hello"}],
        "tools": [TOOL],
        "tool_choice": "required",
        "max_tokens": 1,
    }
    message = client.post(CHAT, json=body).json()["choices"][0]["message"]
    assert message["content"] == ""
    assert "tool_calls" not in message
