"""How the tests ask the way Ollama's clients do."""

import json
from typing import Any

import httpx

from flm.server.schemas.ollama_replies import OllamaChatReply, OllamaGenerateReply
from tests.server.conftest import HELLO

CHAT, GENERATE = PATHS = ("/api/chat", "/api/generate")
REPLIES = {CHAT: OllamaChatReply, GENERATE: OllamaGenerateReply}


def body_of(path: str, **fields: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"messages": HELLO} if path.startswith(CHAT) else {"prompt": "hi"}
    return {**base, **fields}


async def ask(client: httpx.AsyncClient, path: str = CHAT, **fields: Any) -> httpx.Response:
    return await client.post(path, json=body_of(path, **{"stream": False, **fields}))


async def reply_of(client: httpx.AsyncClient, path: str = CHAT, **fields: Any) -> dict[str, Any]:
    """A whole reply, held against its schema."""
    reply = await ask(client, path, **fields)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/json"
    REPLIES[path].model_validate_json(reply.text, strict=True)
    found: dict[str, Any] = reply.json()
    return found


async def lines_of(
    client: httpx.AsyncClient, path: str = CHAT, **fields: Any
) -> list[dict[str, Any]]:
    """The lines of a stream, each held against its schema."""
    reply = await ask(client, path, **{"stream": True, **fields})
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/x-ndjson"
    assert reply.text.endswith("\n")
    lines = [json.loads(line) for line in reply.text.splitlines()]
    for line in lines:
        if "error" not in line:
            REPLIES[path].model_validate_json(json.dumps(line), strict=True)
    return lines


async def error_of(client: httpx.AsyncClient, path: str = CHAT, **fields: Any) -> dict[str, Any]:
    """The error of a request that is refused with 400."""
    reply = await ask(client, path, **fields)
    assert reply.status_code == 400, reply.text
    error: dict[str, Any] = reply.json()
    assert set(error) == {"error", "type", "param", "code"}
    assert isinstance(error["error"], str)
    return error


async def records_of(
    client: httpx.AsyncClient, path: str = CHAT, **fields: Any
) -> dict[str, dict[str, Any]]:
    found = (await reply_of(client, path, **fields)).get("adaptations", [])
    return {entry["field"]: entry for entry in found}


def text_of(path: str, line: dict[str, Any]) -> str:
    return str(line["message"]["content"] if path == CHAT else line["response"])


def thought_of(path: str, line: dict[str, Any]) -> str:
    return str((line["message"] if path == CHAT else line).get("thinking", ""))
