"""What the tests of the Responses API share."""

import json
from typing import Any

import httpx

from flm.server.schemas.open_responses_replies import ResponsesEvent, ResponsesReply
from flm.types import ChoiceDone, Event, FinishReason, TextDelta, ToolCallDelta

PATH = "/v1/responses"
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


async def respond(client: httpx.AsyncClient, given: Any = "hi", **fields: Any) -> httpx.Response:
    return await client.post(PATH, json={"input": given, **fields})


async def whole(client: httpx.AsyncClient, given: Any = "hi", **fields: Any) -> dict[str, Any]:
    reply = await respond(client, given, **fields)
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    ResponsesReply.model_validate(body, strict=True)
    return body


async def streamed(
    client: httpx.AsyncClient, given: Any = "hi", **fields: Any
) -> list[dict[str, Any]]:
    """The events of a stream, whose names, numbers and shapes are right."""
    reply = await respond(client, given, stream=True, **fields)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = []
    for frame in reply.text.split("\n\n")[:-1]:
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        ResponsesEvent.model_validate(event, strict=True)
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def folded(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The output that a client puts together from the deltas alone."""
    items: list[dict[str, Any]] = []
    for event in events:
        match event["type"].removeprefix("response."):
            case "output_item.added":
                assert event["output_index"] == len(items)
                items.append(json.loads(json.dumps(event["item"])))
            case "content_part.added":
                items[event["output_index"]]["content"].append(event["part"])
            case "output_text.delta":
                part = items[event["output_index"]]["content"][event["content_index"]]
                part["text"] += event["delta"]
                part["logprobs"] += event["logprobs"]
            case "reasoning_text.delta":
                items[event["output_index"]]["content"][0]["text"] += event["delta"]
            case "function_call_arguments.delta":
                items[event["output_index"]]["arguments"] += event["delta"]
            case "output_item.done":
                items[event["output_index"]]["status"] = event["item"]["status"]
                assert items[event["output_index"]] == event["item"]
    return items


def plain(value: Any) -> Any:
    """Without ids and times, which no two replies share."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    own = {"id", "call_id", "created_at", "completed_at"}
    return {key: plain(item) for key, item in value.items() if key not in own}


def calling(*, before: str = "", reason: FinishReason = "tool_calls") -> tuple[Event, ...]:
    """Two calls, the first in three parts, with text in front of them if any."""
    text: tuple[Event, ...] = (TextDelta(0, before, "content"),) if before else ()
    return (
        *text,
        ToolCallDelta(0, 0, "call_1", "get_weather", ""),
        ToolCallDelta(0, 0, None, None, '{"city": '),
        ToolCallDelta(0, 0, None, None, '"Paris"}'),
        ToolCallDelta(0, 1, "call_2", "get_weather", "{}"),
        TextDelta(0, "", "content", (1,)),
        ChoiceDone(0, reason),
    )
