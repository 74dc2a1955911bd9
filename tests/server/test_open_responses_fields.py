"""The fields of a request for a response: read, recorded, or refused by name."""

from typing import Any

import httpx
import pytest

from flm.server.context import ServerContext
from flm.server.response_store import ResponseStore
from flm.server.routes.open_responses import completed
from flm.server.schemas.open_responses import ResponsesBody
from flm.server.schemas.open_responses_items import user_message
from tests.server.conftest import in_process, records
from tests.server.open_responses import PATH, WEATHER, respond, whole
from tests.support.fake_service import FakeService

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": 5}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"type": "computer_call"}]}, "input[0].type"),
        ({"input": [{"content": "x"}]}, "input[0].type"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "x"}]}]}, "input[0].content[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0]",
        ),
        (
            {
                "input": [
                    {
                        "type": "function_call_output",
                        "call_id": "a",
                        "output": [{"type": "input_file"}],
                    }
                ]
            },
            "input[0].output[0]",
        ),
        ({"input": [{"type": "function_call", "call_id": "a", "name": "f"}]}, "input[0].arguments"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"instructions": ["x"]}, "instructions"),
        ({"max_output_tokens": 1.5}, "max_output_tokens"),
        ({"max_tool_calls": 0}, "max_tool_calls"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"include": "x"}, "include"),
        ({"truncation": "middle"}, "truncation"),
        ({"text": {"format": "text"}}, "text.format"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"text": {"verbosity": "loud"}}, "text.verbosity"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"name": "f"}]}, "tools[0]"),
        ({"tools": [{"type": "web_search"}, {"type": "function"}]}, "tools[1].name"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0].name"),
        ({"tools": [{**WEATHER, "strict": "yes"}]}, "tools[0].strict"),
        ({"tools": [WEATHER, WEATHER]}, "tools"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "name": "f"}},
            "tool_choice.name",
        ),
        ({"tools": [WEATHER], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"seed": True}, "seed"),
    ],
)
async def test_wrong_fields(client: httpx.AsyncClient, fields: dict[str, Any], param: str) -> None:
    reply = await respond(client, **fields)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), reply.text


async def test_an_image_is_refused_by_name(client: httpx.AsyncClient) -> None:
    parts = [
        {"type": "input_text", "text": "What is it?"},
        {"type": "input_image", "image_url": ""},
    ]
    reply = await respond(client, [{"role": "user", "content": parts}])
    assert reply.json()["error"]["message"] == (
        "input[0].content[1] is an image (input_image), and the models here read text only."
    )


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"tools": [WEATHER, {"type": "web_search"}]}, "tools[1]"),
        ({"include": ["reasoning.encrypted_content"]}, "include[0]"),
        ({"reasoning": {"effort": "low"}}, "reasoning.effort"),
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary"),
        ({"reasoning": {"mode": "x"}}, "reasoning.mode"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"max_tokens": 3}, "max_tokens"),
        ({"max_output_tokens": 10**6}, "max_output_tokens"),
        ({"messages": []}, "messages"),
        ({"response_format": {"type": "text"}}, "response_format"),
        ({"prompt_cache_retention": "24h"}, "prompt_cache_retention"),
        (
            {"input": [{"type": "reasoning", "encrypted_content": "x"}]},
            "input[0].encrypted_content",
        ),
        ({"input": [{"role": "user", "content": "x", "mood": 1}]}, "input[0].mood"),
        (
            {
                "tools": [WEATHER],
                "tool_choice": "required",
                "text": {"format": {"type": "json_object"}},
            },
            "text.format",
        ),
    ],
)
async def test_what_is_not_done_is_recorded_and_can_be_refused(
    client: httpx.AsyncClient, service: FakeService, fields: dict[str, Any], told: str
) -> None:
    assert list(records(await respond(client, **fields))) == [told]
    refused = await respond(client, adaptations="refuse", **fields)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, told)
    assert "adaptations" not in (await respond(client, adaptations="silent", **fields)).json()
    assert len(service.requests) == 2


async def test_fields_that_ask_for_what_is_done_anyway(client: httpx.AsyncClient) -> None:
    reply = await respond(
        client,
        [
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "phase": "final_answer",
                "content": [
                    {"type": "output_text", "text": "x", "annotations": [], "logprobs": []}
                ],
            },
            {"role": "user", "content": "y"},
        ],
        model="fake:1b",
        user="u",
        metadata={"a": "b"},
        safety_identifier="s",
        prompt_cache_key="k",
        service_tier="auto",
        truncation="disabled",
        background=False,
        store=True,
        stream_options={"include_obfuscation": False},
        text={"format": {"type": "text"}, "verbosity": "medium"},
        reasoning={"effort": None, "summary": None},
        include=[],
        tools=[],
        tool_choice="auto",
        parallel_tool_calls=True,
    )
    assert records(reply) == {}
    body = reply.json()
    assert (body["user"], body["safety_identifier"], body["prompt_cache_key"]) == ("u", "s", "k")


async def test_our_own_fields(client: httpx.AsyncClient, service: FakeService) -> None:
    fields = {"top_k": 7, "min_p": 0.2, "repeat_last_n": 5, "repetition_penalty": 1.2}
    once = {"seed": 3, "min_tokens": 2, "stop_token_ids": [5], "logit_bias": {"7": 1}}
    kwargs = {"chat_template_kwargs": {"x": 1}, "cache_prompt": False, "ignore_eos": True}
    assert records(await respond(client, **fields, **once, **kwargs)) == {}
    (request,) = service.requests
    sampling = request.settings.sampling
    assert {name: getattr(sampling, name) for name in fields} == fields
    assert (request.seed, request.min_tokens, request.stop_token_ids) == (3, 2, frozenset({5}))
    assert (request.template_kwargs, request.cache_prompt) == ({"x": 1}, False)
    chat = await client.post(
        "/v1/chat/completions", json={"messages": [{"role": "user", "content": "hi"}]}
    )
    assert set(records(chat)) == set(fields)


async def test_what_calls_are_held_to(client: httpx.AsyncClient, service: FakeService) -> None:
    strict = {**WEATHER, "name": "strict", "strict": True}
    await respond(client, tools=[WEATHER])
    await respond(client, tools=[{"type": "web_search"}, WEATHER, strict])
    await respond(client, tools=[WEATHER], max_tool_calls=2)
    await respond(client, tools=[WEATHER], parallel_tool_calls=False, max_tool_calls=3)
    allowed = {"type": "allowed_tools", "mode": "auto"}
    tools = [{"type": "function", "name": "strict"}]
    await respond(client, tools=[WEATHER, strict], tool_choice={**allowed, "tools": tools})
    await respond(client, tools=[WEATHER], tool_choice="none")
    free, held, few, one, some, none = service.requests
    assert free.calls is None
    assert free.tools == (
        {
            "type": "function",
            "function": {"name": "get_weather", "parameters": WEATHER["parameters"]},
        },
    )
    assert held.calls is not None
    assert (held.calls.param, held.calls.is_forced) == ("tools", False)
    # The place is that in the request, behind the tool that nobody can call here.
    assert [tool.param for tool in held.calls.tools] == [
        "tools[1].parameters",
        "tools[2].parameters",
    ]
    assert [tool.is_enforced for tool in held.calls.tools] == [False, True]
    assert few.calls is not None
    assert (few.calls.param, few.calls.at_most) == ("max_tool_calls", 2)
    assert one.calls is not None
    assert (one.calls.param, one.calls.at_most) == ("parallel_tool_calls", 1)
    assert some.calls is not None
    assert [tool.name for tool in some.calls.tools] == ["strict"]
    assert (none.tools, none.calls) == ((), None)


async def test_formats(client: httpx.AsyncClient, service: FakeService) -> None:
    await respond(client, text={"format": {"type": "json_object"}})
    schema = {"type": "object", "properties": {}}
    await respond(client, text={"format": {"type": "json_schema", "name": "x", "schema": schema}})
    anything, held = (request.constraint for request in service.requests)
    assert anything is not None
    assert held is not None
    assert (anything.kind, anything.value, anything.param) == ("json", None, "text.format")
    assert (held.kind, held.value, held.param) == ("json", schema, "text.format.schema")


async def test_errors_about_the_messages_name_the_input(client: httpx.AsyncClient) -> None:
    reply = await respond(client, "x" * 600)
    error = reply.json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
    counted = await client.post(f"{PATH}/input_tokens", json={"input": "x" * 600, "foo": 1})
    assert counted.json()["input_tokens"] > 600
    assert list(records(counted)) == ["foo"]


async def test_a_plan_of_a_response(client: httpx.AsyncClient, service: FakeService) -> None:
    body = {"input": "hi", "instructions": "Be brief.", "max_output_tokens": 5, "foo": 1}
    plan = (await client.post(f"{PATH}/plan", json=body)).json()
    assert plan["prompt"] == "system: Be brief.\nuser: hi\nassistant:"
    assert (plan["max_new_tokens"], plan["fits"]) == (5, True)
    assert [entry["field"] for entry in plan["adaptations"]] == ["foo"]
    counted = (await client.post(f"{PATH}/input_tokens", json=body)).json()
    assert (counted["object"], counted["input_tokens"]) == (
        "response.input_tokens",
        plan["prompt_tokens"],
    )
    assert counted["adaptations"] == plan["adaptations"]
    assert service.requests == []


async def test_a_server_that_keeps_nothing_says_so(service: FakeService) -> None:
    async with in_process(ServerContext(service, replies=ResponseStore(0))) as client:
        body = await whole(client)
        assert body["store"] is False
        assert "adaptations" not in body
        assert list(records(await respond(client, store=True))) == ["store"]
        assert records(await respond(client, store=False)) == {}
        missing = await respond(client, previous_response_id=body["id"])
        assert "--response-store 0" in missing.json()["error"]["message"]
        assert (await client.get(f"{PATH}/{body['id']}")).status_code == 404


async def test_the_fields_that_messages_came_in() -> None:
    store = ResponseStore()
    store.put(
        {"id": "resp_1", "output": []}, [dict(user_message("before")), dict(user_message("x"))]
    )
    fields = {"instructions": "Be brief.", "previous_response_id": "resp_1"}
    items = [
        {"role": "developer", "content": "a"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "b"}]},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "d"},
    ]
    body = completed(ResponsesBody.model_validate({"input": items, **fields}), store)
    assert [body.own_path(f"messages[{index}].content") for index in range(6)] == [
        "instructions",
        "previous_response_id",
        "previous_response_id",
        "input[0].content",
        "input[1].content",
        "input[3].content",
    ]
    text = completed(ResponsesBody.model_validate({"input": "hi"}), store)
    assert text.own_path("messages[0].content") == text.own_path("messages") == "input"
    assert text.own_path("max_output_tokens") == "max_output_tokens"


FUNCTION = {"type": "function", "name": WEATHER["name"]}


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({"tool_choice": {**FUNCTION, "x": 1}}, ["tool_choice.x"]),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "auto",
                    "tools": [{**FUNCTION, "y": 1}],
                    "x": 1,
                }
            },
            ["tool_choice.x", "tool_choice.tools[0].y"],
        ),
        ({"text": {"format": {"type": "text", "x": 1}}}, ["text.format.x"]),
        ({"text": {"format": {"type": "json_object", "schema": {"a": 1}}}}, ["text.format.schema"]),
    ],
)
async def test_stray_keys_are_on_the_record(
    client: httpx.AsyncClient, fields: dict[str, Any], paths: list[str]
) -> None:
    body = {"input": "hi", "tools": [WEATHER], **fields}
    told = records(await client.post(PATH, json=body))
    assert sorted(told) == sorted(paths)
    assert {entry["action"] for entry in told.values()} == {"dropped"}
