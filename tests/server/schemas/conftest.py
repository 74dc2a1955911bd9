"""Bodies of Anthropic's dialect, sent to a server without an engine."""

from typing import Any

import httpx

from flm.types import GenerationRequest
from tests.server.conftest import HELLO
from tests.support.fake_service import FakeService

PATH = "/v1/messages"
TOOL: dict[str, Any] = {
    "name": "f",
    "description": "Does f.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}


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
