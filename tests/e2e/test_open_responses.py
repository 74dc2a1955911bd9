"""The Responses API on a real model: the same model as in a chat, asked in other words."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from flm.server.schemas.open_responses_replies import ResponsesReply
from tests.support.app import RunningApp
from tests.support.replies import whole

PATH = "/v1/responses"
ASK = "What is the capital of France?"
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Look the weather up.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["c", "f"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
}


@pytest.fixture
def client(fast_app: RunningApp) -> Iterator[httpx.Client]:
    with fast_app.client() as client:
        yield client


def respond(client: httpx.Client, given: Any, **fields: Any) -> dict[str, Any]:
    fields = {"temperature": 0, "max_output_tokens": 24, **fields}
    reply = client.post(PATH, json={"input": given, **fields})
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    ResponsesReply.model_validate(body, strict=True)
    return body


def text_of(body: dict[str, Any]) -> str:
    return "".join(
        part["text"]
        for item in body["output"]
        if item["type"] == "message"
        for part in item["content"]
    )


def test_a_response_says_what_a_chat_says(client: httpx.Client) -> None:
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": ASK}]
    wish: dict[str, Any] = {
        "messages": messages,
        "temperature": 0,
        "max_tokens": 24,
        "logprobs": True,
    }
    chat = whole(client, **wish)
    body = respond(client, ASK, instructions="Be kind.", include=["message.output_text.logprobs"])
    assert text_of(body) == chat.text
    assert body["usage"]["output_tokens"] == chat.usage["completion_tokens"]  # type: ignore[index]
    told = body["output"][0]["content"][0]["logprobs"]
    assert [entry["token"] for entry in told] == [
        entry["token"] for entry in chat.choices[0].logprobs
    ]
    fields = {"input": ASK, "instructions": "Be kind.", "temperature": 0, "max_output_tokens": 24}
    stream = client.post(PATH, json={**fields, "stream": True})
    events = [json.loads(line[6:]) for line in stream.text.splitlines() if line[:6] == "data: "]
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == text_of(body) == text_of(events[-1]["response"])


def test_a_conversation_goes_on_from_the_cache(client: httpx.Client) -> None:
    rules = "You are the helper of a small harbour and answer every question in one short line."
    first = respond(client, ASK, instructions=rules)
    gone_on = respond(client, "And of Spain?", instructions=rules, previous_response_id=first["id"])
    items = [{"role": "user", "content": ASK}, *first["output"]]
    sent = respond(
        client,
        [*items, {"role": "user", "content": "And of Spain?"}],
        instructions=rules,
        cache_prompt=False,
    )
    assert text_of(gone_on) == text_of(sent)
    assert gone_on["usage"]["input_tokens"] == sent["usage"]["input_tokens"]
    # All of the first turn in whole blocks of 32, its reply but for the last token included.
    cached = gone_on["usage"]["input_tokens_details"]["cached_tokens"]
    assert cached >= (first["usage"]["total_tokens"] - 1) // 32 * 32 >= 32
    assert sent["usage"]["input_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "get_weather"}])
def test_a_forced_call_and_its_result(client: httpx.Client, choice: Any) -> None:
    wish: dict[str, Any] = {"tools": [TOOL], "max_output_tokens": 200, "max_tool_calls": 1}
    asked = respond(client, "Weather in Paris?", tool_choice=choice, **wish)
    (call,) = asked["output"]
    arguments = json.loads(call["arguments"])
    assert (asked["status"], call["name"], set(arguments)) == (
        "completed",
        "get_weather",
        {"city", "unit"},
    )
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "Sunny."}
    answer = respond(
        client,
        [result],
        previous_response_id=asked["id"],
        tools=[TOOL],
        tool_choice="none",
    )
    assert text_of(answer)
    assert [item["type"] for item in answer["output"]] == ["message"]


def test_an_answer_held_to_a_schema(client: httpx.Client) -> None:
    schema = TOOL["parameters"]
    body = respond(
        client,
        "Describe the weather, as JSON.",
        text={"format": {"type": "json_schema", "name": "weather", "schema": schema}},
        max_output_tokens=100,
    )
    assert set(json.loads(text_of(body))) == {"city", "unit"}
    wrong = {"type": "object", "properties": {"a": {"type": "string", "format": "no-such"}}}
    reply = client.post(
        PATH,
        json={"input": "x", "text": {"format": {"type": "json_schema", "schema": wrong}}},
    )
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "text.format.schema")
    tools = [{"type": "web_search"}, {**TOOL, "parameters": wrong, "strict": True}]
    reply = client.post(PATH, json={"input": "x", "tools": tools})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "tools[1].parameters")
    # A tool that nobody forces is never a 400 for its schema.
    respond(client, "x", tools=[{**TOOL, "parameters": wrong}], max_output_tokens=1)
