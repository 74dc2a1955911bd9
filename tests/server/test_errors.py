"""Every failure in the envelope, with its status and headers."""

import httpx
import pytest

from flm.errors import (
    EngineDeadError,
    FlmError,
    InternalError,
    LoadingError,
    QueueFullError,
    ShuttingDownError,
)
from flm.server.context import ServerContext
from flm.server.schemas.anthropic_replies import MessageErrorReply
from flm.server.schemas.replies import ErrorReply
from tests.server.conftest import HELLO, events_of, in_process
from tests.support.fake_service import FakeService, Script

pytestmark = pytest.mark.anyio
CHAT = {"messages": HELLO}


def error_of(reply: httpx.Response) -> dict[str, str]:
    ErrorReply.model_validate(reply.json())
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-request-id"]
    return dict(reply.json()["error"])


@pytest.mark.parametrize("path", ["/nope", "/v1", "/v1/chat/completions/", "/v1/models/x/y"])
async def test_unknown_paths(client: httpx.AsyncClient, path: str) -> None:
    reply = await client.get(path)
    assert reply.status_code == 404
    assert error_of(reply)["code"] in {"not_found", "model_not_found"}


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("/v1/messages/nope", {"type", "error", "request_id"}),
        ("/v1/messages/", {"type", "error", "request_id"}),
        ("/v1/messagesnope", {"error"}),
        ("/v1/responses/nope", {"error"}),
        ("/api", {"error", "type", "param", "code"}),
        ("/api/", {"error", "type", "param", "code"}),
        ("/apis", {"error"}),
    ],
)
async def test_the_envelope_is_that_of_the_path(
    client: httpx.AsyncClient, path: str, keys: set[str]
) -> None:
    assert set((await client.get(path)).json()) == keys


async def test_models_are_not_found_in_the_form_they_are_listed_in(
    client: httpx.AsyncClient,
) -> None:
    reply = await client.get("/v1/models/nope", headers={"anthropic-version": "2023-06-01"})
    MessageErrorReply.model_validate(reply.json())
    assert (reply.status_code, reply.json()["error"]["type"]) == (404, "not_found_error")
    for path, headers in (("/v1/models/nope", {}), ("/v1/x", {"anthropic-version": "x"})):
        error_of(await client.get(path, headers=headers))


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/completions", "POST"),
        ("POST", "/v1/models", "GET"),
        ("PUT", "/v1/settings", "DELETE, GET"),
        ("POST", "/health", "GET, HEAD"),
        ("OPTIONS", "/v1/models", "GET"),
        ("BREW", "/v1/version", "GET"),
    ],
)
async def test_wrong_methods(client: httpx.AsyncClient, method: str, path: str, allow: str) -> None:
    reply = await client.request(method, path)
    assert (reply.status_code, reply.headers["allow"]) == (405, allow)
    assert error_of(reply)["code"] == "method_not_allowed"


@pytest.mark.parametrize(
    "error", [QueueFullError("full", retry_after=7), EngineDeadError("dead"), LoadingError("wait")]
)
@pytest.mark.parametrize("stream", [False, True])
async def test_not_now(error: FlmError, stream: bool) -> None:
    service = FakeService(Script(start_error=error))
    async with in_process(ServerContext(service)) as client:
        reply = await client.post("/v1/chat/completions", json={**CHAT, "stream": stream})
    assert reply.status_code == 503
    assert reply.headers["retry-after"] == error.headers["Retry-After"]
    assert error_of(reply)["code"] == error.code
    assert service.num_leases == 0


@pytest.mark.parametrize("at", ["prepare_error", "start_error", "error"])
async def test_our_own_faults_tell_nothing(at: str, caplog: pytest.LogCaptureFixture) -> None:
    script = Script(**{at: KeyError("secret"), "fail_at": 1 if at == "error" else None})
    service = FakeService(script)
    async with in_process(ServerContext(service)) as client:
        reply = await client.post("/v1/chat/completions", json=CHAT)
    assert reply.status_code == 500
    error = error_of(reply)
    assert (error["type"], error["code"]) == ("server_error", "internal")
    assert "secret" not in reply.text
    assert reply.headers["x-request-id"] in error["message"]
    assert "secret" in caplog.text
    assert reply.headers["x-request-id"] in caplog.text
    assert service.num_leases == 0


async def test_faults_outside_a_generation(
    service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> list[object]:
        raise RuntimeError("secret")

    service.models = broken  # type: ignore[assignment,method-assign]
    async with in_process(ServerContext(service)) as client:
        reply = await client.get("/v1/models", headers={"origin": "http://page"})
    assert (reply.status_code, error_of(reply)["code"]) == (500, "internal")
    assert "secret" not in reply.text
    assert "secret" in caplog.text
    assert reply.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("error", [InternalError("it broke"), ShuttingDownError("closing")])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_failures_after_admission(error: FlmError, path: str) -> None:
    service = FakeService(Script(fail_at=2, error=error))
    body = {**CHAT, "prompt": "x"}
    async with in_process(ServerContext(service)) as client:
        streamed = await client.post(path, json={**body, "stream": True})
        whole = await client.post(path, json=body)
    assert whole.status_code == error.status
    assert whole.json() == error.to_dict()
    assert streamed.status_code == 200
    events = events_of(streamed.text)
    assert "[DONE]" not in events
    assert events[-1].startswith('{"error":')
    assert error.message in events[-1]
    assert sum('"error"' in event for event in events) == 1
    assert service.num_leases == 0


async def test_health(service: FakeService, client: httpx.AsyncClient) -> None:
    assert (await client.get("/health")).json() == {"status": "ok"}
    assert (await client.head("/health")).status_code == 200
    for error in (LoadingError("loading"), EngineDeadError("dead")):
        service.health_error = error
        reply = await client.get("/health")
        assert (reply.status_code, error_of(reply)["code"]) == (503, error.code)
        assert "retry-after" in reply.headers
