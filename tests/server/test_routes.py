"""The small paths, the plan and the sticky store; CORS."""

from typing import Any

import httpx
import pytest

from flm.server.context import ServerContext
from flm.server.schemas.replies import ModelReply, PlanReply, SettingsReply
from tests.server.conftest import HELLO, in_process
from tests.support.fake_service import FakeInfo, FakeService

pytestmark = pytest.mark.anyio


async def test_versions_and_greeting(client: httpx.AsyncClient) -> None:
    for path in ("/v1/version", "/api/version"):
        assert (await client.get(path)).json() == {"version": "0.0.0"}
    assert (await client.get("/")).json()["name"] == "flm"
    assert (await client.head("/")).status_code == 200


async def test_models(client: httpx.AsyncClient) -> None:
    listed = (await client.get("/v1/models")).json()
    assert [model["id"] for model in listed["data"]] == ["fake:1b", "org/other:2b"]
    for model in listed["data"]:
        ModelReply.model_validate(model)
        for path in (model["id"], model["id"].replace("/", "%2F").replace(":", "%3A")):
            assert (await client.get(f"/v1/models/{path}")).json() == model
    for name in ("nope", "", "fake:1b/", "FAKE:1b", "%F0%9F%98%80", "..%2F.."):
        reply = await client.get(f"/v1/models/{name}")
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found")
        assert "fake:1b" in reply.json()["error"]["message"]


async def test_the_sticky_store_is_visible(client: httpx.AsyncClient, service: FakeService) -> None:
    sent = await client.post("/v1/completions", json={"prompt": "x", "top_k": 5})
    for path in ("/v1/settings", "/v1/settings?model=", "/v1/settings?model=fake:1b"):
        reply = (await client.get(path)).json()
        SettingsReply.model_validate(reply)
        changed = [entry for entry in reply["settings"] if entry["set_by"] is not None]
        assert [entry["field"] for entry in changed] == ["top_k"]
        assert (changed[0]["value"], changed[0]["default"]) == (5, 40)
        assert changed[0]["set_by"] == sent.json()["id"]
        assert changed[0]["set_at"].endswith("+00:00")
    restored = (await client.delete("/v1/settings")).json()
    assert all(entry["value"] == entry["default"] for entry in restored["settings"])
    assert service.current.store.peek({}).inherited == ()


async def test_looking_at_a_model_does_not_swap_it_in(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    for method in ("GET", "DELETE"):
        reply = await client.request(method, "/v1/settings?model=org/other:2b")
        assert reply.json()["model"] == "org/other:2b"
    assert service.current.info.id == "fake:1b"
    assert (await client.get("/v1/settings?model=nope")).status_code == 404


async def test_a_plan(client: httpx.AsyncClient, service: FakeService) -> None:
    await client.post("/v1/completions", json={"prompt": "x", "min_p": 0.5})
    before = service.current.store.peek({})
    body = {"messages": HELLO, "temperature": 0, "top_p": 7, "max_tokens": 10**6}
    plan = (await client.post("/v1/chat/completions/plan", json=body)).json()
    PlanReply.model_validate(plan)
    assert plan["object"] == "plan"
    assert plan["prompt"] == "user: hi\nassistant:"
    assert (plan["prompt_tokens"], plan["cached_tokens"]) == (19, 2)
    assert plan["prefill_chunks"] == [16, 1]
    assert (plan["max_new_tokens"], plan["fits"]) == (512 - 19, False)
    assert (plan["settings"]["temperature"], plan["settings"]["min_p"]) == (0, 0.5)
    actions = {entry["field"]: entry["action"] for entry in plan["adaptations"]}
    assert actions == {"top_p": "dropped", "min_p": "defaulted", "max_tokens": "clamped"}
    assert service.current.store.peek({}) == before
    assert len(service.requests) == 1


async def test_a_plan_of_several_prompts(client: httpx.AsyncClient) -> None:
    body = {"prompt": ["abc", "x" * 20], "max_tokens": 5}
    plan = (await client.post("/v1/completions/plan", json=body)).json()
    PlanReply.model_validate(plan)
    assert plan["prompt"] is None
    assert plan["prompt_tokens"] == 23
    assert [item["prompt_tokens"] for item in plan["prompts"]] == [3, 20]
    assert plan["prefill_chunks"] == [1, 16, 2]
    assert (plan["max_new_tokens"], plan["fits"]) == (5, True)


@pytest.mark.parametrize(
    "fields",
    [
        {"seed": True},
        {"messages": []},
        {"model": "nope"},
        {"x": 1, "adaptations": "refuse"},
        {"messages": [{"role": "user", "content": "x" * 600}]},
        {"min_tokens": 3, "max_tokens": 2},
    ],
)
async def test_a_plan_rejects_what_the_call_rejects(
    client: httpx.AsyncClient, fields: dict[str, object]
) -> None:
    body = {"messages": HELLO, **fields}
    call = await client.post("/v1/chat/completions", json=body)
    plan = await client.post("/v1/chat/completions/plan", json=body)
    assert call.status_code >= 400
    assert (plan.status_code, plan.json()) == (call.status_code, call.json())


async def test_another_model_is_named_in_the_reply(client: httpx.AsyncClient) -> None:
    body = {"messages": HELLO, "model": "org/other:2b"}
    reply = await client.post("/v1/chat/completions", json=body)
    assert reply.json()["model"] == "org/other:2b"


async def test_cors(client: httpx.AsyncClient, service: FakeService) -> None:
    asked = "content-type, authorization, x-stainless-lang, x-anything"
    preflight = await client.options(
        "/v1/chat/completions",
        headers={
            "origin": "http://page",
            "access-control-request-method": "POST",
            "access-control-request-headers": asked,
        },
    )
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "*"
    assert preflight.headers["access-control-allow-headers"] == asked
    assert "POST" in preflight.headers["access-control-allow-methods"]
    reply = await client.post("/v1/nope", headers={"origin": "http://page"})
    assert reply.headers["access-control-allow-origin"] == "*"
    assert "x-request-id" in reply.headers["access-control-expose-headers"]
    async with in_process(ServerContext(service), cors=False) as closed:
        reply = await closed.get("/health", headers={"origin": "http://page"})
        assert "access-control-allow-origin" not in reply.headers
        assert (await closed.options("/health", headers={"origin": "x"})).status_code == 405


async def test_a_model_that_is_not_loaded_has_blanks() -> None:
    info = FakeInfo(
        "a:1b", loaded=False, dtype=None, kv_dtype=None, device=None, exact=None, vocab_size=None
    )
    service = FakeService(infos=[FakeInfo("b:1b"), info])
    async with in_process(ServerContext(service)) as client:
        model = (await client.get("/v1/models/a:1b")).json()
    ModelReply.model_validate(model)
    assert (model["loaded"], model["vocab_size"]) == (False, None)


@pytest.mark.parametrize(
    ("path", "body"), [("chat/completions", {"messages": HELLO}), ("completions", {"prompt": "x"})]
)
async def test_a_server_may_insist_on_a_model(path: str, body: dict[str, object]) -> None:
    service: Any = FakeService()
    async with in_process(ServerContext(service, require_model=True)) as client:
        for end in ("", "/plan"):
            reply = await client.post(f"/v1/{path}{end}", json=body)
            error = reply.json()["error"]
            assert (reply.status_code, error["param"]) == (400, "model")
            assert "--require-model" in error["message"]
            assert (
                await client.post(f"/v1/{path}{end}", json={**body, "model": "fake:1b"})
            ).is_success


@pytest.mark.parametrize("body", [{}, {"keep_alive": 0}])
@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
async def test_to_load_a_model_it_must_be_named_too(path: str, body: dict[str, object]) -> None:
    service: Any = FakeService()
    async with in_process(ServerContext(service, require_model=True)) as client:
        reply = await client.post(path, json=body)
        assert (reply.status_code, reply.json()["param"]) == (400, "model")
        named = await client.post(path, json={**body, "model": "fake:1b"})
        assert named.json()["done_reason"] == ("unload" if body else "load")
