"""What tool_choice, strict and parallel_tool_calls become, and what is refused."""

from typing import Any

import httpx
import pytest

from flm.types import CallableTool, CallRules
from tests.server.conftest import HELLO, post, records
from tests.support.fake_service import FakeService

pytestmark = pytest.mark.anyio


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {}, **fields}}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [named(name) for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def callable_(index: int, name: str, *, is_enforced: bool) -> CallableTool:
    return CallableTool(name, {}, f"tools[{index}].function.parameters", is_enforced)


F, G = tool("f"), tool("g")
STRICT = tool("s", strict=True)
FORCED_F = callable_(0, "f", is_enforced=True)
FORCED_G = callable_(1, "g", is_enforced=True)
FREE_F = callable_(0, "f", is_enforced=False)
FREE_G = callable_(1, "g", is_enforced=False)
STRICT_S = callable_(1, "s", is_enforced=True)

RULES: list[tuple[dict[str, Any], list[str], CallRules | None]] = [
    ({"tools": [F, G]}, ["f", "g"], None),
    ({"tools": [F, G], "tool_choice": "auto", "parallel_tool_calls": True}, ["f", "g"], None),
    ({"tools": [STRICT], "tool_choice": "none", "parallel_tool_calls": False}, [], None),
    ({"parallel_tool_calls": False, "tool_choice": "auto"}, [], None),
    (
        {"tools": [F, G], "tool_choice": "required"},
        ["f", "g"],
        CallRules((FORCED_F, FORCED_G), 16, True, "tool_choice"),
    ),
    (
        {"tools": [F, G], "tool_choice": "required", "parallel_tool_calls": False},
        ["f", "g"],
        CallRules((FORCED_F, FORCED_G), 1, True, "tool_choice"),
    ),
    (
        {"tools": [F, G], "tool_choice": named("g")},
        ["g"],
        CallRules((FORCED_G,), 1, True, "tool_choice"),
    ),
    (
        {"tools": [F, G], "tool_choice": allowed("required", "g")},
        ["g"],
        CallRules((FORCED_G,), 16, True, "tool_choice"),
    ),
    (
        {"tools": [F, G, STRICT], "tool_choice": allowed("auto", "g", "f", "g")},
        ["f", "g"],
        CallRules((FREE_F, FREE_G), 16, False, "tool_choice"),
    ),
    (
        {"tools": [F, STRICT]},
        ["f", "s"],
        CallRules((FREE_F, STRICT_S), 16, False, "tools"),
    ),
    (
        {"tools": [F], "parallel_tool_calls": False},
        ["f"],
        CallRules((FREE_F,), 1, False, "parallel_tool_calls"),
    ),
    (
        {"tools": [F], "response_format": {"type": "json_object"}},
        ["f"],
        CallRules((FREE_F,), 16, False, "tools"),
    ),
]


@pytest.mark.parametrize(("fields", "shown", "rules"), RULES)
async def test_what_is_shown_and_what_is_enforced(
    client: httpx.AsyncClient,
    service: FakeService,
    fields: dict[str, Any],
    shown: list[str],
    rules: CallRules | None,
) -> None:
    assert records(await post(client, **fields)) == {}
    (request,) = service.requests
    assert [tool["function"]["name"] for tool in request.tools] == shown
    assert request.calls == rules


CHOICES: list[tuple[Any, str, str]] = [
    (
        "sometimes",
        "tool_choice",
        "tool_choice must be 'none', 'auto', 'required', or a named function",
    ),
    *(
        (value, "tool_choice", "tool_choice must be a supported string or function-tool object")
        for value in (5, True, [], {}, {"type": "web"}, {"function": {"name": "f"}})
    ),
    *(
        (
            {"type": "function", **rest},
            "tool_choice",
            "named tool_choice must have the shape {type:'function', function:{name:'...'}}",
        )
        for rest in ({}, {"function": "f"}, {"function": {}}, {"function": {"name": 5}})
    ),
    (
        named("h"),
        "tool_choice.function.name",
        "tool_choice names a function that is not present in tools: h",
    ),
    (
        {"type": "allowed_tools", "tools": []},
        "tool_choice.allowed_tools",
        "allowed_tools tool_choice must contain an allowed_tools object",
    ),
    (
        allowed("none", "f"),
        "tool_choice.allowed_tools.mode",
        "allowed_tools.mode must be 'auto' or 'required'",
    ),
    (
        allowed("auto"),
        "tool_choice.allowed_tools.tools",
        "allowed_tools.tools must be a non-empty array",
    ),
    (
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named("f"), "g"]}},
        "tool_choice.allowed_tools.tools[1]",
        "tool_choice.allowed_tools.tools[1] must name a function",
    ),
    (
        allowed("auto", "f", "h"),
        "tool_choice.allowed_tools.tools[1].function.name",
        "allowed_tools names a function that is not present in tools: h",
    ),
]


@pytest.mark.parametrize(("choice", "param", "message"), CHOICES)
async def test_a_choice_that_cannot_be_read(
    client: httpx.AsyncClient, choice: Any, param: str, message: str
) -> None:
    for stream in (False, True):
        reply = await post(client, tools=[F, G], tool_choice=choice, stream=stream)
        error = reply.json()["error"]
        assert reply.status_code == 400
        assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_value")
        assert (error["param"], error["message"]) == (param, message)


@pytest.mark.parametrize("tools", [None, []])
@pytest.mark.parametrize(
    "choice", ["required", named("f"), allowed("auto", "f"), allowed("required", "f")]
)
async def test_a_call_needs_a_tool(client: httpx.AsyncClient, choice: Any, tools: Any) -> None:
    error = (await post(client, tools=tools, tool_choice=choice)).json()["error"]
    assert error["param"] == "tool_choice"
    assert error["message"] == "tool_choice requires at least one function in tools"


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_choice": "required"},
        {"tool_choice": named("f")},
        {"tool_choice": allowed("required", "f")},
        {"tool_choice": allowed("auto", "f")},
        {"parallel_tool_calls": False},
        {"tools": [STRICT]},
    ],
)
async def test_what_is_enforced_cannot_be_continued(
    client: httpx.AsyncClient, fields: dict[str, Any]
) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "Well"}]
    wanted = {"tools": [F], "messages": messages, "continue_final_message": True, **fields}
    reply = await post(client, **wanted)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "continue_final_message"


FORMATS: list[tuple[str, Any]] = [
    ("response_format", {"type": "json_object"}),
    ("structured_outputs", {"regex": "a"}),
    ("guided_choice", ["a"]),
    ("structured_outputs", {"grammar": 'start: "a"'}),
]


@pytest.mark.parametrize(("name", "value"), FORMATS)
async def test_a_forced_call_leaves_no_answer_to_format(
    client: httpx.AsyncClient, name: str, value: Any
) -> None:
    wanted = {"tools": [F], "tool_choice": "required", name: value}
    entry = records(await post(client, **wanted))[name]
    assert entry["action"] == "dropped"
    assert "tool_choice" in entry["reason"]
    reply = await post(client, **wanted, adaptations="refuse")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, name)


async def test_a_grammar_leaves_no_room_for_calls(client: httpx.AsyncClient) -> None:
    wanted = {"tools": [F], "structured_outputs": {"grammar": 'start: "a"'}}
    reply = await post(client, **wanted)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "structured_outputs.grammar"
    assert records(await post(client, **wanted, tool_choice="none")) == {}
