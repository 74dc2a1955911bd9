"""What a body of Anthropic's asks for, in the terms of the service, and the record of the rest."""

from typing import Any

import httpx
import pytest

from flm.server.body import parse_object
from flm.server.context import ServerContext
from flm.server.schemas.anthropic import UNREAD, MessagesBody
from flm.types import GenerationRequest, Settings
from tests.server.conftest import HELLO, in_process, records
from tests.support.fake_service import FakeInfo, FakeService

pytestmark = pytest.mark.anyio
PATH = "/v1/messages"
TOOL: dict[str, Any] = {
    "name": "f",
    "description": "Does f.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
REPLY = {"role": "assistant", "content": "Well"}


async def ask(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await client.post(PATH, json={"max_tokens": 50, "messages": HELLO, **fields})


async def request_of(
    client: httpx.AsyncClient, service: FakeService, **fields: Any
) -> GenerationRequest:
    reply = await ask(client, **fields)
    assert reply.status_code == 200, reply.text
    return service.requests[-1]


async def fault(client: httpx.AsyncClient, **fields: Any) -> tuple[str, str]:
    """The field that is blamed, and the message."""
    reply = await ask(client, **fields)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    return error["param"], error["message"]


# --- messages ----------------------------------------------------------------------------------


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
    assert body.message_fields == (
        "system",
        "messages[0].content",
        "messages[0].content",
        "messages[1].content",
    )
    assert len(body.message_fields) == len(body.plain_messages)


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


# --- tools -------------------------------------------------------------------------------------


async def test_tools(client: httpx.AsyncClient, service: FakeService) -> None:
    request = await request_of(client, service, tools=[SEARCH, {**TOOL, "type": "custom"}])
    function = {"name": "f", "description": "Does f.", "parameters": TOOL["input_schema"]}
    assert request.tools == ({"type": "function", "function": function},)
    assert request.calls is None
    nothing = await request_of(client, service, tools=[TOOL], tool_choice={"type": "none"})
    assert nothing.tools == ()


async def test_calls_that_are_enforced(client: httpx.AsyncClient, service: FakeService) -> None:
    async def rules(**fields: Any) -> Any:
        request = await request_of(client, service, **fields)
        found = request.calls
        assert found is not None
        tools = [(tool.name, tool.param, tool.is_enforced) for tool in found.tools]
        return tools, found.at_most > 1, found.is_forced, found.param

    other = {**TOOL, "name": "g"}
    f, g = ("f", "tools[1].input_schema", True), ("g", "tools[2].input_schema", True)
    tools = [SEARCH, TOOL, other]
    assert await rules(tools=tools, tool_choice={"type": "any"}) == (
        [f, g],
        True,
        True,
        "tool_choice",
    )
    assert await rules(tools=tools, tool_choice={"type": "tool", "name": "g"}) == (
        [g],
        False,
        True,
        "tool_choice",
    )
    single = {"type": "any", "disable_parallel_tool_use": True}
    assert (await rules(tools=tools, tool_choice=single))[1:] == (False, True, "tool_choice")
    single = {"type": "auto", "disable_parallel_tool_use": True}
    assert (await rules(tools=tools, tool_choice=single))[1:] == (
        False,
        False,
        "tool_choice.disable_parallel_tool_use",
    )
    strict = [SEARCH, {**TOOL, "strict": True}]
    assert await rules(tools=strict) == ([f], True, False, "tools")


def test_eager_tools() -> None:
    tools = [TOOL, {**TOOL, "name": "g", "eager_input_streaming": True}]
    body = MessagesBody.model_validate({"max_tokens": 1, "messages": HELLO, "tools": tools})
    assert body.eager_tools == {"g"}


# --- reasoning and form ------------------------------------------------------------------------

ON = {"type": "enabled"}
OFF = {"type": "disabled"}
REASONING: list[tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = [
    ({"thinking": ON}, {"think": True}, {}),
    ({"thinking": {"type": "adaptive"}}, {"think": True}, {}),
    ({"thinking": OFF}, {"think": False}, {}),
    (
        {"thinking": {**ON, "budget_tokens": 2048, "display": "summarized"}},
        {"think": True},
        {"thinking.budget_tokens": "dropped", "thinking.display": "dropped"},
    ),
    ({"output_config": {"effort": "high"}}, {"think": True, "reasoning_effort": "high"}, {}),
    (
        {"thinking": ON, "output_config": {"effort": "max"}},
        {"think": True, "reasoning_effort": "high"},
        {"output_config.effort": "substituted"},
    ),
    (
        {"thinking": OFF, "output_config": {"effort": "low"}},
        {"think": False},
        {"output_config.effort": "dropped"},
    ),
    ({"thinking": OFF, "output_config": {"effort": "none"}}, {"think": False}, {}),
    ({"output_config": {"effort": "?"}}, {}, {"output_config.effort": "dropped"}),
    (
        {"output_config": {"effort": "low"}, "reasoning_effort": "high"},
        {"think": True, "reasoning_effort": "low"},
        {"reasoning_effort": "dropped"},
    ),
    ({"reasoning_effort": "low"}, {"think": True, "reasoning_effort": "low"}, {}),
    ({"think": True}, {"think": True}, {}),
    ({"think": True, "thinking": OFF}, {"think": False}, {"think": "dropped"}),
    ({"think": True, "thinking": ON}, {"think": True}, {}),
    ({"thinking": ON, "enable_thinking": False}, {"think": True}, {"thinking": "substituted"}),
]


@pytest.mark.parametrize(("fields", "sent", "recorded"), REASONING)
async def test_reasoning(
    fields: dict[str, Any], sent: dict[str, Any], recorded: dict[str, str]
) -> None:
    infos = [FakeInfo("think:1b", reasons=True, defaults=Settings(think=False))]
    service = FakeService(infos=infos)
    async with in_process(ServerContext(service)) as client:  # type: ignore[arg-type]
        reply = await ask(client, **fields)
        told = records(reply)
        assert dict(service.requests[0].sent) == sent
        assert {name: entry["action"] for name, entry in told.items()} == recorded
        if sent.get("think"):
            # What stuck is told by the names of whoever asks next.
            assert "thinking" in records(await ask(client))


async def test_reasoning_of_a_model_that_does_not(client: httpx.AsyncClient) -> None:
    told = records(await ask(client, thinking=ON, output_config={"effort": "low"}))
    assert {name: entry["action"] for name, entry in told.items()} == {
        "thinking": "dropped",
        "output_config.effort": "dropped",
    }


async def test_formats(client: httpx.AsyncClient, service: FakeService) -> None:
    wanted = {"type": "json_schema", "schema": SCHEMA}
    for fields, param in (
        ({"output_config": {"format": wanted}}, "output_config.format.schema"),
        ({"output_format": wanted}, "output_format.schema"),
    ):
        constraint = (await request_of(client, service, **fields)).constraint
        assert constraint is not None
        assert (constraint.kind, constraint.value, constraint.param) == ("json", SCHEMA, param)
        forced = await ask(client, **fields, tools=[TOOL], tool_choice={"type": "any"})
        assert list(records(forced)) == [param.removesuffix(".schema")]
    both = {"output_config": {"format": wanted}, "output_format": wanted}
    assert (await fault(client, **both))[0] == "output_format"


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
        ({"thinking": ON}, "thinking"),
        ({"max_tokens": 5000}, "max_tokens"),
        ({"bogus": 1}, "bogus"),
    ):
        assert (await fault(client, **fields, adaptations="refuse"))[0] == param
    assert service.requests == []


def test_null_is_absent() -> None:
    raw = b'{"max_tokens": 1, "messages": [{"role": "user", "content": "a"}], "system": null}'
    assert MessagesBody.model_validate(parse_object(raw)).system is None
