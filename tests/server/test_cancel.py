"""``POST /api/cancel``: which requests it finds, how they end, and what it answers otherwise."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from flm.server.context import ServerContext
from flm.server.schemas.anthropic_replies import MessageReply
from flm.server.schemas.open_responses_replies import ResponsesReply
from flm.server.schemas.replies import CancelReply
from flm.types import ChoiceDone, ToolCallDelta
from tests.server.conftest import HELLO, PATHS, body_for, events_of, in_process
from tests.support.fake_service import FakeService, Script

pytestmark = pytest.mark.anyio
DONE = {"cancelled": True, "message": "Request cancelled successfully"}
ABSENT = {"cancelled": False, "message": "Request not found or already completed"}
ALL = (*PATHS, "/completion", "/api/chat", "/api/generate")


PROMPTS: dict[str, dict[str, Any]] = {
    "/completion": {"prompt": "hi"},
    "/api/generate": {"prompt": "hi"},
    "/api/chat": {"messages": HELLO},
}


@pytest.fixture
def service() -> FakeService:
    """It says two pieces and then waits."""
    return FakeService(Script(hold_at=2))


@pytest.fixture
def ctx(service: FakeService) -> ServerContext:
    return ServerContext(service)  # type: ignore[arg-type]


@pytest.fixture
def client(ctx: ServerContext) -> httpx.AsyncClient:
    return in_process(ctx)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what it waits for sets no event
            await asyncio.sleep(0)


async def until_running(ctx: ServerContext, service: FakeService, count: int = 1) -> None:
    await until(lambda: len(service.requests) >= count and len(ctx.running) >= count)


def ask(client: httpx.AsyncClient, path: str, **fields: Any) -> "asyncio.Task[httpx.Response]":
    if path.startswith("/api"):
        fields = {"stream": False, **fields}
    body = body_for(path, **fields) if path in PATHS else {**PROMPTS[path], **fields}
    return asyncio.create_task(client.post(path, json=body))


async def cancel(client: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await client.post("/api/cancel", json=body)


def text_and_reason(path: str, reply: dict[str, Any]) -> tuple[str, str]:
    if path == "/completion":
        return reply["content"], reply["stop_type"]
    if path.startswith("/api"):
        said = reply["response"] if "response" in reply else reply["message"]["content"]
        return said, reply["done_reason"]
    (choice,) = reply["choices"]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    return text, choice["finish_reason"]


@pytest.mark.parametrize("path", ALL)
async def test_a_whole_reply_ends_with_what_was_said(
    client: httpx.AsyncClient, ctx: ServerContext, service: FakeService, path: str
) -> None:
    asked = ask(client, path, request_id="mine")
    await until_running(ctx, service)
    told = await cancel(client, request_id="mine")
    assert (told.status_code, told.json()) == (200, DONE)
    CancelReply.model_validate(told.json())
    reply = await asked
    assert reply.status_code == 200
    reason = "none" if path == "/completion" else "cancel"
    assert text_and_reason(path, reply.json()) == ("Hello,", reason)
    assert (await cancel(client, request_id="mine")).json() == ABSENT
    assert len(ctx.running) == 0


@pytest.mark.parametrize("path", PATHS)
async def test_a_stream_ends_with_the_reason(
    client: httpx.AsyncClient, ctx: ServerContext, service: FakeService, path: str
) -> None:
    asked = ask(client, path, request_id="mine", stream=True)
    await until_running(ctx, service)
    assert (await cancel(client, request_id="mine")).json() == DONE
    *chunks, end = events_of((await asked).text)
    assert end == "[DONE]"
    choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
    reasons = [choice["finish_reason"] for choice in choices]
    assert (reasons[:-1], reasons[-1]) == ([None] * (len(reasons) - 1), "cancel")
    parts = [
        item["delta"].get("content", "") if "delta" in item else item["text"] for item in choices
    ]
    assert "".join(parts) == "Hello,"


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_message_that_is_cancelled_has_no_reason_of_anthropics(
    client: httpx.AsyncClient, ctx: ServerContext, service: FakeService, is_stream: bool
) -> None:
    body = {"messages": HELLO, "max_tokens": 99, "stream": is_stream}
    asked = asyncio.create_task(client.post("/v1/messages", json=body))
    await until_running(ctx, service)
    assert (await cancel(client, request_id=service.requests[0].id)).json() == DONE
    reply = await asked
    if not is_stream:
        found = MessageReply.model_validate(reply.json())
        assert found.stop_reason is None
        assert reply.json()["content"][0]["text"] == "Hello,"
        return
    *_, end, stop = [json.loads(item.split("data: ")[1]) for item in events_of(reply.text)]
    assert (end["delta"]["stop_reason"], stop["type"]) == (None, "message_stop")


async def test_a_call_that_is_cancelled_is_a_block_with_what_is_certain_of_its_input(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    parts = (ToolCallDelta(0, 0, "call_1", "go", ""), ToolCallDelta(0, 0, None, None, '{"a": 1, '))
    service.script = Script(events=(*parts, ChoiceDone(0, "cancel")))
    reply = await client.post("/v1/messages", json={"messages": HELLO, "max_tokens": 99})
    (block,) = reply.json()["content"]
    assert (block["type"], block["input"]) == ("tool_use", {"a": 1})
    assert reply.json()["stop_reason"] is None


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_response_that_is_cancelled_says_so_and_is_kept(
    client: httpx.AsyncClient, ctx: ServerContext, service: FakeService, is_stream: bool
) -> None:
    body = {"input": "hi", "stream": is_stream}
    asked = asyncio.create_task(client.post("/v1/responses", json=body))
    await until_running(ctx, service)
    assert (await cancel(client, request_id=service.requests[0].id)).json() == DONE
    reply = await asked
    if is_stream:
        event = json.loads(events_of(reply.text)[-1].split("data: ")[1])
        assert event["type"] == "response.incomplete"
        response = event["response"]
    else:
        response = reply.json()
    ResponsesReply.model_validate(response, strict=True)
    assert (response["status"], response["incomplete_details"]) == ("cancelled", None)
    assert (response["store"], response["completed_at"]) == (True, None)
    (item,) = response["output"]
    assert (item["status"], item["content"][0]["text"]) == ("incomplete", "Hello,")
    assert (await client.get(f"/v1/responses/{response['id']}")).json() == response
    on = {"input": "more", "previous_response_id": response["id"]}
    service.script = Script()
    assert (await client.post("/v1/responses", json=on)).json()["status"] == "completed"
    messages = service.requests[-1].messages
    assert messages is not None
    assert [item["content"] for item in messages] == ["hi", "Hello,", "more"]


async def test_openais_own_cancel_says_what_to_do_instead(
    client: httpx.AsyncClient, ctx: ServerContext, service: FakeService
) -> None:
    asked = asyncio.create_task(client.post("/v1/responses", json={"input": "hi"}))
    await until_running(ctx, service)
    path = f"/v1/responses/{service.requests[0].id}/cancel"
    running = await client.post(path)
    assert running.status_code == 400
    assert "POST /api/cancel" in running.json()["error"]["message"]
    service.hold.set()
    assert (await asked).json()["status"] == "completed"
    assert (await client.post(path)).json() == running.json()
    gone = await client.post("/v1/responses/resp_0/cancel")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "not_found")


async def test_a_request_is_found_by_the_id_of_its_reply(
    client: httpx.AsyncClient, ctx: ServerContext, service: FakeService
) -> None:
    asked = ask(client, PATHS[0])
    await until_running(ctx, service)
    request_id = service.requests[0].id
    assert request_id.startswith("chatcmpl-")
    assert (await cancel(client, request_id=request_id)).json() == DONE
    reply = await asked
    assert reply.json()["id"] == reply.headers["x-request-id"] == request_id


async def test_requests_of_one_name_end_together_and_others_go_on(
    client: httpx.AsyncClient, ctx: ServerContext, service: FakeService
) -> None:
    asked = [ask(client, PATHS[0], request_id=name) for name in ("same", "same", "other")]
    await until_running(ctx, service, count=3)
    assert (await cancel(client, request_id="same")).json() == DONE
    one, two = await asyncio.gather(*asked[:2])
    for reply in (one, two):
        assert reply.json()["choices"][0]["finish_reason"] == "cancel"
    assert not asked[2].done()
    service.hold.set()
    assert (await asked[2]).json()["choices"][0]["finish_reason"] == "stop"
    assert len(ctx.running) == 0


async def test_the_registry_forgets_what_ends_in_any_way(
    client: httpx.AsyncClient, ctx: ServerContext, service: FakeService
) -> None:
    service.hold.set()
    assert (await ask(client, PATHS[0], request_id="whole")).status_code == 200
    assert (await ask(client, PATHS[0], request_id="x", stream=True)).status_code == 200
    assert (await ask(client, PATHS[0], request_id="x", model="nope")).status_code == 404
    assert (await ask(client, PATHS[0], request_id="x", messages=[])).status_code == 400
    service.script = Script(fail_at=1)
    assert (await ask(client, PATHS[0], request_id="x")).status_code == 500
    service.script = Script(hold_at=1)
    service.hold.clear()
    gone = ask(client, PATHS[0], request_id="gone")
    await until_running(ctx, service, count=1)
    gone.cancel()
    await asyncio.wait({gone})
    await asyncio.sleep(0)
    assert len(ctx.running) == 0
    assert (await cancel(client, request_id="gone")).json() == ABSENT


async def test_a_request_that_waits_for_a_swap_is_told_so(
    client: httpx.AsyncClient, ctx: ServerContext, service: FakeService
) -> None:
    swap = asyncio.Event()
    resolve = service.resolve

    async def slow(name: str | None) -> str:
        await swap.wait()
        return await resolve(name)

    service.resolve = slow  # type: ignore[method-assign]
    asked = ask(client, PATHS[0], request_id="mine", stream=True)
    await until(lambda: len(ctx.running) == 1)
    assert (await cancel(client, request_id="mine")).json() == DONE
    reply = await asked
    assert (reply.status_code, reply.json()["error"]["code"]) == (499, "cancelled")
    assert service.requests == []
    assert len(ctx.running) == 0


async def test_what_has_already_ended_is_not_found(client: httpx.AsyncClient) -> None:
    for name in ("never", "chatcmpl-0"):
        assert (await cancel(client, request_id=name)).json() == ABSENT


@pytest.mark.parametrize(
    "body", [{}, {"request_id": None}, {"request_id": ""}, {"request_id": 5}, {"id": "x"}]
)
async def test_a_cancel_without_a_name_is_an_error(
    client: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    reply = await client.post("/api/cancel", json=body)
    assert reply.status_code == 400
    assert "request_id" in str(reply.json())


async def test_unknown_fields_of_a_cancel_are_recorded(client: httpx.AsyncClient) -> None:
    (entry,) = (await cancel(client, request_id="x", force=True)).json()["adaptations"]
    assert (entry["field"], entry["action"]) == ("force", "dropped")
    refused = await cancel(client, request_id="x", force=True, adaptations="refuse")
    assert refused.status_code == 400


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("value", ["", 5, True, ["a"], {}])
async def test_a_name_is_a_text(client: httpx.AsyncClient, path: str, value: Any) -> None:
    reply = await ask(client, path, request_id=value)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "request_id")


async def test_a_stream_of_lines_ends_with_the_reason(
    client: httpx.AsyncClient, ctx: ServerContext, service: FakeService
) -> None:
    asked = ask(client, "/api/chat", request_id="mine", stream=True)
    await until_running(ctx, service)
    assert (await cancel(client, request_id="mine")).json() == DONE
    *lines, last = map(json.loads, (await asked).text.splitlines())
    assert [line["message"]["content"] for line in lines] == ["Hello", ","]
    assert (last["done"], last["done_reason"]) == (True, "cancel")


async def test_a_model_that_is_being_loaded_for_nobody_is_left(
    client: httpx.AsyncClient, ctx: ServerContext, service: FakeService
) -> None:
    swap = asyncio.Event()

    async def slow(_name: str | None) -> str:
        await swap.wait()
        return "fake:1b"

    service.resolve = slow  # type: ignore[method-assign]
    asked = ask(client, "/api/chat", request_id="mine", messages=[])
    await until(lambda: len(ctx.running) == 1)
    assert (await cancel(client, request_id="mine")).json() == DONE
    reply = await asked
    assert (reply.status_code, reply.json()["code"]) == (499, "cancelled")
