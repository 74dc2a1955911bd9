"""What a body of Anthropic's may hold, what it asks for, and the record of the rest."""

from typing import Any

import httpx
import pytest

from flm.server.body import parse_object
from flm.server.schemas.anthropic import UNREAD, MessagesBody
from tests.server.conftest import HELLO, records
from tests.server.schemas.conftest import SCHEMA, SEARCH, TOOL, ask, fault, request_of
from tests.support.fake_service import FakeService

pytestmark = pytest.mark.anyio
REPLY = {"role": "assistant", "content": "Well"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content[0].type"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "tool_result", "tool_use_id": "a", "content": [IMAGE]}
                        ],
                    }
                ]
            },
            "messages[0].content[0].content[0].type",
        ),
        ({"system": [IMAGE]}, "system[0].type"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": None}, "max_tokens"),
        ({"stop_sequences": ["a"] * 17}, "stop_sequences"),
        ({"thinking": {"type": "maybe"}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1.5}}, "thinking.budget_tokens"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [{**TOOL, "name": "a b"}]}, "tools[0].name"),
        ({"tools": [TOOL, SEARCH, TOOL]}, "tools[2].name"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0]"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": {"type": "required"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}, "tools": [TOOL]}, "tool_choice.name"),
        ({"tool_choice": {"type": "tool", "name": "g"}, "tools": [TOOL]}, "tool_choice.name"),
        ({"tool_choice": {"type": "any"}, "tools": [SEARCH]}, "tool_choice"),
    ],
)
async def test_what_cannot_be_read(
    client: httpx.AsyncClient, fields: dict[str, Any], param: str
) -> None:
    assert (await fault(client, **fields))[0] == param


# --- continuing --------------------------------------------------------------------------------


async def test_a_last_message_of_the_assistants_is_continued(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    messages = [*HELLO, REPLY]
    assert (await request_of(client, service, messages=messages)).continue_final_message
    apart = await request_of(client, service, messages=messages, continue_final_message=False)
    assert not apart.continue_final_message
    assert not (await request_of(client, service)).continue_final_message
    assert (await fault(client, continue_final_message=True))[0] == "continue_final_message"


@pytest.mark.parametrize(
    ("last", "fields", "why"),
    [
        ({"content": " \n"}, {}, "no text"),
        ({"content": [{"type": "thinking", "thinking": "Hm"}]}, {}, "no text"),
        ({"content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}, {}, "tool_use"),
        ({}, {"tools": [TOOL], "tool_choice": {"type": "any"}}, "tool_choice"),
        ({}, {"tools": [{**TOOL, "strict": True}]}, "tools"),
        (
            {},
            {
                "tools": [TOOL],
                "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
            },
            "tool_choice.disable_parallel_tool_use",
        ),
        ({}, {"output_format": {"type": "json_schema", "schema": SCHEMA}}, "output_format.schema"),
    ],
)
async def test_what_cannot_be_continued(
    client: httpx.AsyncClient, last: dict[str, Any], fields: dict[str, Any], why: str
) -> None:
    wanted = {"messages": [*HELLO, {**REPLY, **last}], **fields}
    param, message = await fault(client, **wanted)
    assert param == "messages[1]"
    assert why in message
    assert (await ask(client, **wanted, continue_final_message=False)).status_code == 200


# --- the record --------------------------------------------------------------------------------


async def test_fields_without_effect(client: httpx.AsyncClient) -> None:
    ephemeral = {"type": "ephemeral", "ttl": "1h"}
    redacted = [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "a"}]
    reply = await ask(
        client,
        messages=[*HELLO, {"role": "assistant", "content": redacted}, *HELLO],
        cache_control=ephemeral,
        metadata={"user_id": "a"},
        service_tier="priority",
        tools=[
            {**TOOL, "cache_control": ephemeral, "defer_loading": True, "input_examples": [{}]},
            SEARCH,
            {**TOOL, "name": "g", "allowed_callers": ["code_execution_20250825"]},
        ],
        tool_choice={"type": "auto", "name": "f"},
        container="x",
        context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
        betas=["b"],
        temperature=-1,
    )
    assert list(records(reply)) == [
        "temperature",
        "messages[1].content[0]",
        "tools[0].defer_loading",
        "tools[1]",
        "tools[2].allowed_callers",
        "tools[0].input_examples",
        "tool_choice.name",
        "service_tier",
        "container",
        "context_management",
    ]
    assert records(reply)["tools[1]"]["asked"] == "web_search_20250305"


async def test_fields_that_are_met(client: httpx.AsyncClient) -> None:
    reply = await ask(
        client,
        service_tier="standard_only",
        tools=[{**TOOL, "defer_loading": False, "allowed_callers": ["direct"]}],
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        mcp_servers=[],
        speed="standard",
        inference_geo="global",
        anthropic_version="vertex-2023-10-16",
    )
    assert records(reply) == {}
    met = {"betas", "anthropic_version", "anthropic_beta", "user_profile_id", "workspace_id"}
    for name in UNREAD:
        assert (name in records(await ask(client, **{name: "something"}))) == (name not in met)


async def test_refuse(client: httpx.AsyncClient, service: FakeService) -> None:
    for fields, param in (
        ({"tools": [SEARCH]}, "tools[0]"),
        ({"thinking": {"type": "enabled"}}, "thinking"),
        ({"max_tokens": 5000}, "max_tokens"),
        ({"bogus": 1}, "bogus"),
    ):
        assert (await fault(client, **fields, adaptations="refuse"))[0] == param
    assert service.requests == []


def test_null_is_absent() -> None:
    raw = b'{"max_tokens": 1, "messages": [{"role": "user", "content": "a"}], "system": null}'
    assert MessagesBody.model_validate(parse_object(raw)).system is None
