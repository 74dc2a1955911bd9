"""The input of calls: what is an object that a reply can carry, and what becomes of the rest."""

import json
from typing import Any

import httpx
import pytest

from flm.server.call_input import read_object
from flm.types import ChoiceDone, ToolCallDelta
from tests.server.conftest import HELLO
from tests.support.fake_service import FakeService, Script

UNREADABLE = (
    '{"a": NaN}',
    '{"a": 1e999}',
    '{"a": [{"b": -1e999}]}',
    '{"a": -Infinity, "b": 1000000000000000000000000}',
    '{"a": ' + "[" * 5000 + "]" * 5000 + "}",
    '{"a": ' + "9" * 5000 + "}",
    '{"a": "\\ud800"}',
    '{"a": 1',
    "[1]",
    "",
)


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_no_reply_can_carry_is_no_object(text: str) -> None:
    assert read_object(text) is None


def test_objects() -> None:
    big = 10**24
    assert read_object(f'{{"a": {big}, "b": [1.5, null]}}') == {"a": big, "b": [1.5, None]}
    assert read_object('{"a": 1, "b": "x', is_cut=True) == {"a": 1}
    assert read_object("", is_cut=True) == {}


@pytest.mark.anyio
async def test_a_forced_call_that_no_object_can_carry(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    text = '{"a": 1e999}'
    events = (ToolCallDelta(0, 0, "call_1", "go", text), ChoiceDone(0, "tool_calls"))
    service.script = Script(events=events)
    body: dict[str, Any] = {
        "messages": HELLO,
        "max_tokens": 99,
        "tools": [{"name": "go", "input_schema": {}}],
        "tool_choice": {"type": "any"},
    }
    reply = (await client.post("/v1/messages", json=body)).json()
    (block,) = reply["content"]
    assert (block["type"], block["text"]) == ("text", f'{{"name": "go", "arguments": {text}')
    assert reply["stop_reason"] == "end_turn"
    # A stream has told of the call when the number comes; it gives the text as it is.
    stream = await client.post("/v1/messages", json={**body, "stream": True})
    assert json.dumps(text)[1:-1] in stream.text
    assert '"stop_reason":"tool_use"' in stream.text


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("text", UNREADABLE)
async def test_such_a_call_is_text(
    client: httpx.AsyncClient, service: FakeService, text: str, stream: bool
) -> None:
    parts = (ToolCallDelta(0, 0, "call_1", "go", ""), ToolCallDelta(0, 0, None, None, text))
    service.script = Script(events=(*parts, ChoiceDone(0, "tool_calls")))
    said = f'{{"name": "go", "arguments": {text}'
    for path, extra in (("/v1/messages", {"max_tokens": 99}), ("/api/chat", {})):
        body: dict[str, Any] = {"messages": HELLO, "stream": stream, **extra}
        reply = await client.post(path, json=body)
        assert reply.status_code == 200
        assert json.dumps(said)[1:-1] in reply.text
        assert "tool_calls" not in reply.text
        assert "tool_use" not in reply.text.replace("server_tool_use", "")
