"""Responses, whole and streamed: their shapes, their order, and that both say the same."""

from typing import Any

import httpx
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from flm.errors import EngineDeadError
from flm.server.context import ServerContext
from flm.types import ChoiceDone, TextDelta
from tests.server.conftest import in_process
from tests.server.open_responses import (
    WEATHER,
    calling,
    folded,
    plain,
    respond,
    streamed,
    whole,
)
from tests.support.fake_service import FakeInfo, FakeService, Script, logprob_of

pytestmark = pytest.mark.anyio
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


async def test_a_whole_response(client: httpx.AsyncClient) -> None:
    reply = await respond(client, instructions="Be brief.", metadata={"a": "b"}, seed=1)
    body = reply.json()
    Response.model_validate(body)
    assert body["id"] == reply.headers["x-request-id"]
    assert body["id"].startswith("resp_")
    assert (body["object"], body["status"], body["error"]) == ("response", "completed", None)
    assert body["completed_at"] >= body["created_at"]
    (message,) = body["output"]
    assert message["id"].startswith("msg_")
    assert plain(message) == {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [
            {"type": "output_text", "text": "Hello, world!", "annotations": [], "logprobs": []}
        ],
    }
    usage = body["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (37, 5, 42)
    assert usage["input_tokens_details"] == {"cached_tokens": 2, "cache_write_tokens": 35}
    assert usage["output_tokens_details"] == {"reasoning_tokens": 0}
    assert (body["instructions"], body["metadata"]) == ("Be brief.", {"a": "b"})
    assert "adaptations" not in body


async def test_settings_are_given_back_as_they_are_in_force(client: httpx.AsyncClient) -> None:
    body = await whole(
        client,
        temperature=-1,
        top_p=0.5,
        presence_penalty=0.25,
        max_output_tokens=10**6,
        top_logprobs=3,
        parallel_tool_calls=False,
        max_tool_calls=2,
        tools=[{"type": "web_search"}, WEATHER],
        tool_choice={"type": "function", "name": "get_weather"},
        text={"format": {"type": "json_schema", "schema": {"type": "object"}, "strict": False}},
        truncation="auto",
        background=True,
        service_tier="flex",
        store=False,
        cache_prompt=False,
    )
    assert (body["temperature"], body["top_p"], body["presence_penalty"]) == (0.8, 0.5, 0.25)
    assert body["max_output_tokens"] == 512 - body["usage"]["input_tokens"]
    assert (body["top_logprobs"], body["max_tool_calls"]) == (3, 2)
    assert body["tools"] == [{**WEATHER, "description": None, "strict": False}]
    assert body["tool_choice"] == {"type": "function", "name": "get_weather"}
    assert body["text"]["format"] == {
        "type": "json_schema",
        "name": "",
        "description": None,
        "schema": {"type": "object"},
        "strict": True,
    }
    assert (body["truncation"], body["background"], body["service_tier"]) == (
        "disabled",
        False,
        "default",
    )
    assert (body["store"], body["parallel_tool_calls"]) == (False, False)
    assert body["usage"]["input_tokens_details"]["cache_write_tokens"] == 0
    later = await whole(client)
    assert (later["top_p"], later["max_output_tokens"]) == (0.5, None)
    assert {entry["field"] for entry in later["adaptations"]} == {"top_p", "presence_penalty"}


SCRIPTS = {
    "text": Script(),
    "nothing": Script(pieces=("",)),
    "reasoning": Script(pieces=("Hm", "m", "Yes"), num_reasoning=2),
    "reasoning alone": Script(pieces=("Hm", "m"), num_reasoning=2),
    "calls": Script(events=calling()),
    "text and calls": Script(events=calling(before="Let me see.")),
    "a call that was cut": Script(events=calling(reason="length")),
}
KINDS = {
    "text": ["message"],
    "nothing": ["message"],
    "reasoning": ["reasoning", "message"],
    "reasoning alone": ["reasoning"],
    "calls": ["function_call"] * 2,
    "text and calls": ["message", "function_call", "function_call"],
    "a call that was cut": ["function_call"] * 2,
}


@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_stream_folds_to_the_whole_response(name: str) -> None:
    service = FakeService(SCRIPTS[name])
    async with in_process(ServerContext(service)) as client:
        fields: dict[str, Any] = {"bogus": 1, "tools": [WEATHER]}
        events = await streamed(client, **fields)
        body = await whole(client, **fields)
    for event in events:
        EVENT.validate_python(event)
    last = events[-1]["response"]
    assert plain(last) == plain(body)
    assert folded(events) == last["output"]
    assert [item["type"] for item in last["output"]] == KINDS[name]
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == f"response.{body['status']}"
    assert len({event["response"]["id"] for event in events if "response" in event}) == 1
    # What was adapted stands at both ends.
    with_record = [event["type"] for event in events if "adaptations" in event.get("response", {})]
    assert with_record == ["response.created", kinds[-1]]
    assert [entry["field"] for entry in body["adaptations"]] == ["bogus"]


async def test_the_order_of_events(client: httpx.AsyncClient, service: FakeService) -> None:
    service.script = Script(pieces=("Hm", "Yes"), num_reasoning=1)
    kinds = [event["type"].removeprefix("response.") for event in await streamed(client)]
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    service.script = Script(events=calling())
    kinds = [event["type"].removeprefix("response.") for event in await streamed(client)]
    assert kinds[2:7] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]


async def test_calls(client: httpx.AsyncClient, service: FakeService) -> None:
    service.script = Script(events=calling())
    body = await whole(client, tools=[WEATHER])
    first, second = body["output"]
    assert (first["call_id"], first["name"]) == ("call_1", "get_weather")
    assert (first["arguments"], second["arguments"]) == ('{"city": "Paris"}', "{}")
    assert first["id"].startswith("fc_")
    assert (body["status"], first["status"], second["status"]) == ("completed",) * 3
    service.script = Script(events=calling(reason="length"))
    body = await whole(client, tools=[WEATHER])
    assert [item["status"] for item in body["output"]] == ["completed", "incomplete"]


async def test_a_response_that_was_cut(client: httpx.AsyncClient) -> None:
    body = await whole(client, max_output_tokens=2)
    assert (body["status"], body["completed_at"]) == ("incomplete", None)
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert body["output"][0]["status"] == "incomplete"
    assert body["output"][0]["content"][0]["text"] == "Hello,"
    for nothing in (0, -1, None):
        assert (await whole(client, max_output_tokens=nothing))["status"] == "completed"


@pytest.mark.parametrize(
    ("fields", "num_top"),
    [
        ({}, None),
        ({"top_logprobs": 0}, None),
        ({"top_logprobs": 2}, 2),
        ({"include": ["message.output_text.logprobs"]}, 0),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 1}, 1),
    ],
)
async def test_log_probabilities(
    client: httpx.AsyncClient, fields: dict[str, Any], num_top: int | None
) -> None:
    body = await whole(client, **fields)
    found = body["output"][0]["content"][0]["logprobs"]
    assert "adaptations" not in body
    if num_top is None:
        assert found == []
        return
    assert [entry["token"] for entry in found] == ["Hello", ",", " wor", "ld", "!"]
    assert found[0]["bytes"] == list(b"Hello")
    assert len(found[0]["top_logprobs"]) == num_top
    assert folded(await streamed(client, **fields))[0]["content"][0]["logprobs"] == found


async def test_tokens_without_text_belong_to_the_message_behind_or_in_front(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    def delta(text: str, token: str, channel: Any = "content") -> TextDelta:
        return TextDelta(0, text, channel, (1,), (logprob_of(token, 0),))

    async def told() -> list[list[str]]:
        body = await whole(client, top_logprobs=1)
        parts = [item["content"][0] for item in body["output"] if item["type"] == "message"]
        return [[entry["token"] for entry in part["logprobs"]] for part in parts]

    service.script = Script(
        events=(delta("", "a"), delta("b", "b"), delta("", "<end>"), ChoiceDone(0, "stop"))
    )
    assert await told() == [["a", "b", "<end>"]]
    service.script = Script(events=(delta("", "<end>"), ChoiceDone(0, "stop")))
    assert await told() == [["<end>"]]
    # What was thought and called has no place for them.
    service.script = Script(
        events=(delta("x", "x", "reasoning"), delta("b", "b"), ChoiceDone(0, "stop"))
    )
    assert await told() == [["b"]]
    service.script = Script(events=calling())
    assert await told() == []


async def test_a_stream_that_fails() -> None:
    service = FakeService(Script(fail_at=2, error=EngineDeadError("The engine stopped.")))
    async with in_process(ServerContext(service)) as client:
        events = await streamed(client)
        failed = events[-1]["response"]
        assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
        assert events[-2]["error"]["code"] == "engine_dead"
        assert failed["status"] == "failed"
        assert failed["error"] == {"code": "server_error", "message": "The engine stopped."}
        (message,) = failed["output"]
        assert message["status"] == "incomplete"
        assert message["content"][0]["text"] == "Hello,"
        assert failed["store"] is True
        assert (await client.get(f"/v1/responses/{failed['id']}")).json() == failed
        service.script = Script(fail_at=0)
        kinds = [event["type"] for event in await streamed(client)]
        assert kinds == ["response.created", "response.in_progress", "error", "response.failed"]
        whole_one = await respond(client)
        assert (whole_one.status_code, whole_one.json()["error"]["code"]) == (500, "internal")


async def test_reasoning_effort_has_the_name_that_was_used() -> None:
    service = FakeService(infos=[FakeInfo("thinker:1b", reasons=True)])
    async with in_process(ServerContext(service)) as client:
        body = await whole(client, reasoning={"effort": "minimal", "summary": "auto"})
        told = {entry["field"]: entry for entry in body["adaptations"]}
        assert told["reasoning.effort"]["applied"] == "low"
        assert told["reasoning.summary"]["action"] == "dropped"
        assert body["reasoning"] == {"effort": "low", "summary": None}
        # It sticks, and who did not send it is told under the dialect's name.
        later = await whole(client)
        assert "reasoning.effort" in {entry["field"] for entry in later["adaptations"]}
        assert later["reasoning"]["effort"] == "low"
        plain_name = await whole(client, reasoning_effort="max")
        assert "reasoning_effort" in {entry["field"] for entry in plain_name["adaptations"]}
        both = await whole(client, reasoning={"effort": "low"}, reasoning_effort="high")
        assert both["reasoning"]["effort"] == "low"
        assert {entry["field"] for entry in both["adaptations"]} >= {"reasoning_effort"}
