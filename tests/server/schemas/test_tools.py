"""The shape of tools."""

from typing import Any

import httpx
import pytest

from flm.server.schemas.chat import ChatBody
from flm.server.schemas.ollama import OllamaChatBody
from flm.server.schemas.open_responses import ResponsesBody
from tests.server.conftest import HELLO, TOOL, post
from tests.support.fake_service import FakeService

pytestmark = pytest.mark.anyio


async def test_tools_reach_the_template(client: httpx.AsyncClient, service: FakeService) -> None:
    await post(client, tools=[TOOL], tool_choice="auto")
    await post(client, tools=[TOOL], tool_choice="none")
    assert service.requests[0].tools == (TOOL,)
    assert service.requests[1].tools == ()


def function(**fields: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "f", **fields}}]


TOOLS: list[tuple[dict[str, Any], str, str]] = [
    ({"tools": {}}, "tools", "tools must be an array"),
    ({"tools": [5]}, "tools[0]", "tools[0] must be a function tool"),
    ({"tools": [TOOL, {"type": "web"}]}, "tools[1]", "tools[1] must be a function tool"),
    ({"tools": [TOOL, TOOL]}, "tools", "tool function names must be unique: f"),
    (
        {"tools": function(name="a b")},
        "tools[0].function.name",
        "tools[0].function.name must contain at most 64 letters, digits, underscores, or hyphens",
    ),
    (
        {"tools": function(description=5)},
        "tools[0].function.description",
        "tools[0].function.description must be a string",
    ),
    (
        {"tools": function(parameters=[])},
        "tools[0].function.parameters",
        "tools[0].function.parameters must be a JSON Schema object",
    ),
    (
        {"tools": function(strict=1)},
        "tools[0].function.strict",
        "tools[0].function.strict must be a boolean",
    ),
]


@pytest.mark.parametrize(("fields", "param", "message"), TOOLS)
async def test_tools_of_a_wrong_shape(
    client: httpx.AsyncClient, fields: dict[str, Any], param: str, message: str
) -> None:
    error = (await post(client, **fields)).json()["error"]
    assert (error["param"], error["message"]) == (param, message)


def test_the_fields_that_shown_tools_came_in() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in "fg"]
    only_g = {"type": "function", "function": {"name": "g"}}
    paths = ("shown_tools[0].x", "shown_tools[0].function.x")
    for schema in (ChatBody, OllamaChatBody):
        body = schema.model_validate({"messages": HELLO, "tools": tools, "tool_choice": only_g})
        assert [*map(body.own_path, paths)] == ["tools[1].x", "tools[1].function.x"]
    flat = [{"type": "web_search"}, *({"type": "function", "name": name} for name in "fg")]
    only_g = {"type": "function", "name": "g"}
    asked = ResponsesBody.model_validate({"input": "hi", "tools": flat, "tool_choice": only_g})
    assert asked.own_path(paths[1]) == "tools[2].x"
