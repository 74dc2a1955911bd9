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


def test_a_token_of_stop_token_ids_cuts_a_call_as_the_limit_does(client: httpx.Client) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    forced = {"tools": [TOOL], "tool_choice": "required", "seed": 7, "max_tokens": 99}
    body = {**forced, "messages": messages, "return_token_ids": True}
    (full,) = client.post(CHAT, json=body).json()["choices"]
    assert full["finish_reason"] == "tool_calls"
    ids = full["token_ids"]
    fresh = [token for place, token in enumerate(ids[:45]) if token not in ids[:place]]
    told = set()
    for token in (fresh[0], fresh[len(fresh) // 2], fresh[-1]):
        stopped = {**body, "stop_token_ids": [token]}
        (one,) = whole(client, **stopped).choices
        (other,) = streamed(client, **stopped).choices
        assert one.finish_reason == other.finish_reason == "length"
        assert (one.text, other.text) == ("", "")
        told.add(bool(one.calls))
    assert told == {False, True}
    stop = {"stop_token_ids": [fresh[0]]}
    theirs = {**forced, **stop, "messages": messages, "stream": False}
    assert client.post("/api/chat", json=theirs).json()["done_reason"] == "length"
    flat = {**forced, **stop, "tools": [{"type": "function", **TOOL["function"]}], "input": "Hello"}
    assert client.post("/v1/responses", json=flat).json()["status"] == "incomplete"
