"""The tools of Anthropic's dialect, and what is enforced of their calls."""

from typing import Any

import httpx
import pytest

from flm.server.schemas.anthropic import MessagesBody
from tests.server.conftest import HELLO
from tests.server.schemas.conftest import SEARCH, TOOL, request_of
from tests.support.fake_service import FakeService

pytestmark = pytest.mark.anyio


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
