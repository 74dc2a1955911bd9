"""Ollama's models, versions and errors, and what is done on the command line instead."""

from dataclasses import replace
from typing import Any

import httpx
import pytest

from flm.errors import QueueFullError
from flm.server.context import ServerContext
from flm.server.schemas.ollama_replies import PsReply, ShowReply, TagsReply
from tests.server.conftest import in_process, post
from tests.server.ollama import CHAT, PATHS, ask, body_of
from tests.support.fake_service import FakeInfo, FakeService, Script

pytestmark = pytest.mark.anyio
DETAILS = {
    "parent_model": "",
    "format": "gguf",
    "family": "llama",
    "families": ["llama"],
    "parameter_size": "1B",
    "quantization_level": "none",
}


async def test_tags(client: httpx.AsyncClient) -> None:
    reply = (await client.get("/api/tags")).json()
    TagsReply.model_validate(reply)
    assert [model["name"] for model in reply["models"]] == ["fake:1b", "org/other:2b"]
    assert reply["models"][0] == {
        "name": "fake:1b",
        "model": "fake:1b",
        "size": 1000,
        "digest": "ab" * 32,
        "details": DETAILS,
        "modified_at": "2023-11-14T22:13:20.000000000Z",
    }
    assert (await client.head("/api/tags")).status_code == 200


async def test_what_is_not_known_is_left_out() -> None:
    service = FakeService(infos=[FakeInfo("path", digest=None)])
    async with in_process(ServerContext(service)) as client:  # type: ignore[arg-type]
        for path in ("/api/tags", "/api/ps"):
            (model,) = (await client.get(path)).json()["models"]
            assert "digest" not in model


@pytest.mark.parametrize(("device", "size"), [("cpu", 0), ("cuda:0", 1000)])
async def test_ps(device: str, size: int) -> None:
    service = FakeService(infos=[FakeInfo("a:1b", device=device), FakeInfo("b:1b", loaded=False)])
    async with in_process(ServerContext(service)) as client:  # type: ignore[arg-type]
        reply = (await client.get("/api/ps")).json()
        PsReply.model_validate(reply)
        (model,) = reply["models"]
        assert (model["name"], model["size"], model["size_vram"]) == ("a:1b", 1000, size)
        assert (model["context_length"], model["expires_at"][:4]) == (512, "9999")
        service.current = None  # type: ignore[assignment]
        assert (await client.get("/api/ps")).json() == {"models": []}


async def test_show(client: httpx.AsyncClient) -> None:
    reply = (await client.post("/api/show", json={"model": "fake:1b"})).json()
    ShowReply.model_validate(reply)
    assert reply["details"] == DETAILS
    assert reply["capabilities"] == ["completion", "tools"]
    assert reply["template"] == "{{ messages }}"
    assert reply["model_info"] == {
        "general.architecture": "llama",
        "general.parameter_count": 1_000_000_000,
        "llama.context_length": 512,
        "llama.vocab_size": 300,
    }
    assert "PARAMETER temperature 0.8\n" in reply["modelfile"]
    assert "temperature                    0.8" in reply["parameters"].splitlines()
    await ask(client, options={"temperature": 0.25})
    again = (await client.post("/api/show", json={"name": "fake:latest:1b"})).status_code
    assert again == 404
    again = (await client.post("/api/show", json={"name": "fake:1b:latest"})).json()
    assert "temperature                    0.25" in again["parameters"].splitlines()


async def test_a_model_that_is_not_loaded_is_shown_without_loading_it() -> None:
    info = FakeInfo("b:1b", loaded=False, vocab_size=None, device=None, reasons=True)
    service = FakeService(infos=[FakeInfo("a:1b"), info])
    async with in_process(ServerContext(service)) as client:  # type: ignore[arg-type]
        reply = (await client.post("/api/show", json={"model": "b:1b"})).json()
        ShowReply.model_validate(reply)
        assert reply["capabilities"] == ["completion", "tools", "thinking"]
        assert "template" not in reply
        assert "llama.vocab_size" not in reply["model_info"]
        assert service.current.model_id == "a:1b"


async def test_a_show_that_cannot_be_answered(client: httpx.AsyncClient) -> None:
    for body, status in (({}, 400), ({"model": 5}, 400), ({"model": "nope"}, 404)):
        reply = await client.post("/api/show", json=body)
        assert (reply.status_code, reply.json()["param"]) == (status, "model")
    for value, told in ((True, ["verbose"]), (False, [])):
        reply = await client.post("/api/show", json={"model": "fake:1b", "verbose": value})
        assert [item["field"] for item in reply.json().get("adaptations", [])] == told


async def test_the_version(client: httpx.AsyncClient) -> None:
    assert (await client.get("/api/version")).json() == {"version": "0.0.0"}
    assert (await client.head("/api/version")).status_code == 200
    assert (await client.head("/")).status_code == 200
    assert "Ollama is running" in (await client.get("/")).text


@pytest.mark.parametrize(
    ("method", "path", "command"),
    [
        ("POST", "/api/embed", "no embeddings"),
        ("POST", "/api/embeddings", "no embeddings"),
        ("POST", "/api/pull", "flm pull"),
        ("DELETE", "/api/delete", "flm remove"),
        ("POST", "/api/copy", "--served-name"),
        ("POST", "/api/create", "flm serve"),
        ("POST", "/api/push", "not uploaded"),
    ],
)
async def test_what_is_not_done_says_what_to_do(
    client: httpx.AsyncClient, method: str, path: str, command: str
) -> None:
    reply = await client.request(method, path, json={"model": "x", "input": "y"})
    assert (reply.status_code, reply.json()["code"]) == (501, "not_supported")
    assert command in reply.json()["error"]


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_unknown_model(client: httpx.AsyncClient, path: str, stream: bool) -> None:
    reply = await ask(client, path, model="nope", stream=stream)
    error = reply.json()
    assert (reply.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert "nope" in error["error"]
    # On the other endpoints the same error has OpenAI's form.
    assert (await post(client, model="nope")).json()["error"]["code"] == "model_not_found"


async def test_errors_before_a_route_have_the_form_too(client: httpx.AsyncClient) -> None:
    for method, path, status in (
        ("GET", "/api/nothing", 404),
        ("GET", "/api/chat", 405),
        ("POST", "/api/tags", 405),
    ):
        reply = await client.request(method, path)
        assert (reply.status_code, type(reply.json()["error"])) == (status, str)
    for content in (b"", b"[]", b"{", b'{"a":1,"a":2}'):
        reply = await client.post("/api/chat", content=content)
        assert (reply.status_code, reply.json()["code"]) == (400, "invalid_json")


async def test_a_full_queue_says_when_to_come_back(service: FakeService) -> None:
    service.script = Script(start_error=QueueFullError("Busy.", retry_after=3))
    async with in_process(ServerContext(service)) as client:  # type: ignore[arg-type]
        for stream in (False, True):
            reply = await ask(client, stream=stream)
            assert (reply.status_code, reply.json()["error"]) == (503, "Busy.")
            assert reply.headers["retry-after"] == "3"


async def test_a_large_body_is_refused_in_the_form(service: FakeService) -> None:
    ctx = replace(ServerContext(service), max_body_bytes=100)  # type: ignore[arg-type]
    async with in_process(ctx) as client:
        reply = await ask(client, messages=[{"role": "user", "content": "x" * 200}])
        assert (reply.status_code, reply.json()["code"]) == (413, "too_large")


# --- plans -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
async def test_a_plan_is_what_the_request_would_do(
    client: httpx.AsyncClient, service: FakeService, path: str
) -> None:
    fields: dict[str, Any] = {"options": {"temperature": 0.5, "mirostat": 2, "num_predict": 3}}
    plan = (await client.post(f"{path}/plan", json=body_of(path, **fields))).json()
    assert (plan["object"], plan["max_new_tokens"]) == ("plan", 3)
    assert plan["settings"]["temperature"] == 0.5
    assert [entry["field"] for entry in plan["adaptations"]] == ["options.mirostat"]
    assert plan["prompt"] == "user: hi\nassistant:"
    assert service.requests == []
    assert service.current.store.peek({}).inherited == ()
    wrong = await client.post(f"{CHAT}/plan", json={"messages": 5})
    assert (wrong.status_code, wrong.json()["param"]) == (400, "messages")
