"""``/v1/messages`` over HTTP: replies, errors, counts, and the models in Anthropic's form."""

import json
from typing import Any

import httpx
import pytest

from flm.errors import ContextLengthError, EngineDeadError, QueueFullError
from flm.server.context import ServerContext
from flm.server.schemas.anthropic_replies import (
    AnthropicModelList,
    AnthropicModelReply,
    CountReply,
    MessageErrorReply,
    MessageEvent,
    MessageReply,
)
from flm.server.schemas.replies import PlanReply
from flm.types import Settings
from tests.server.conftest import HELLO, in_process, records
from tests.support.fake_service import FakeInfo, FakeService, Script

pytestmark = pytest.mark.anyio
PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"


def body(**fields: Any) -> dict[str, Any]:
    return {"max_tokens": 50, "messages": HELLO, **fields}


async def ask(client: httpx.AsyncClient, path: str = PATH, **fields: Any) -> httpx.Response:
    return await client.post(path, json=body(**fields))


def events_of(reply: httpx.Response) -> list[dict[str, Any]]:
    """The data of each event, whose name must be its type."""
    assert reply.status_code == 200, reply.text
    events = []
    for frame in filter(None, reply.text.split("\n\n")):
        name, data = frame.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def error_of(reply: httpx.Response) -> dict[str, Any]:
    told = reply.json()
    MessageErrorReply.model_validate(told)
    assert told["request_id"] == reply.headers["request-id"] == reply.headers["x-request-id"]
    return told["error"]  # type: ignore[no-any-return]


# --- replies -----------------------------------------------------------------------------------


async def test_a_whole_message(client: httpx.AsyncClient, service: FakeService) -> None:
    reply = await ask(client, model="fake:1b", temperature=0.5, seed=3, min_p=0.25)
    message = reply.json()
    MessageReply.model_validate(message)
    assert message["content"] == [{"type": "text", "text": "Hello, world!", "citations": None}]
    assert (message["role"], message["model"], message["stop_reason"]) == (
        "assistant",
        "fake:1b",
        "end_turn",
    )
    assert message["id"].startswith("msg_")
    assert message["id"] == reply.headers["request-id"]
    prompt_len = len("user: hi\nassistant:")
    assert message["usage"]["input_tokens"] == prompt_len - 2
    assert message["usage"]["cache_read_input_tokens"] == 2
    assert message["usage"]["output_tokens"] == 5
    assert "adaptations" not in message
    assert (service.requests[0].seed, service.requests[0].sent) == (
        3,
        {"temperature": 0.5, "min_p": 0.25},
    )


async def test_a_stream(client: httpx.AsyncClient, service: FakeService) -> None:
    service.script = Script(pieces=("Hm", "Yes", "!"), num_reasoning=1)
    reply = await ask(client, stream=True, foo=1)
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = events_of(reply)
    for event in events:
        MessageEvent.model_validate(event)
    assert [event["type"] for event in events] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert [entry["field"] for entry in events[0]["message"]["adaptations"]] == ["foo"]
    # Progress tells what was cached before anything is said.
    assert events[0]["message"]["usage"]["cache_read_input_tokens"] == 2


async def test_limits_and_stops(client: httpx.AsyncClient) -> None:
    stopped = (await ask(client, stop_sequences=["", "wor"])).json()
    assert stopped["content"][0]["text"] == "Hello, "
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "wor")
    assert (await ask(client, max_tokens=2)).json()["stop_reason"] == "max_tokens"
    nothing = (await ask(client, max_tokens=0)).json()
    assert (nothing["content"], nothing["stop_reason"]) == ([], "max_tokens")
    full = await ask(client, messages=[{"role": "user", "content": "x" * 492}])
    assert full.json()["stop_reason"] == "model_context_window_exceeded"
    assert records(full)["max_tokens"]["action"] == "clamped"


async def test_omitted_thoughts() -> None:
    infos = [FakeInfo("think:1b", reasons=True, defaults=Settings(think=True))]
    service = FakeService(Script(pieces=("Hm", "Yes"), num_reasoning=1), infos=infos)
    async with in_process(ServerContext(service)) as client:  # type: ignore[arg-type]
        shown = await ask(client, thinking={"type": "adaptive"})
        omitted = await ask(client, thinking={"type": "adaptive", "display": "omitted"})
    thoughts = {"type": "thinking", "thinking": "Hm", "signature": ""}
    assert shown.json()["content"][0] == thoughts
    assert omitted.json()["content"][0] == {**thoughts, "thinking": ""}
    assert records(shown) == records(omitted) == {}
    assert shown.json()["usage"]["output_tokens_details"] == {"thinking_tokens": 1}


async def test_the_plan(client: httpx.AsyncClient, service: FakeService) -> None:
    plan = (await ask(client, f"{PATH}/plan", system="Be kind.", foo=1)).json()
    PlanReply.model_validate(plan)
    assert plan["prompt"] == "system: Be kind.\nuser: hi\nassistant:"
    assert [entry["field"] for entry in plan["adaptations"]] == ["foo"]
    assert service.requests == []


# --- errors ------------------------------------------------------------------------------------


async def test_every_error_has_anthropics_form(client: httpx.AsyncClient) -> None:
    for method, path, status, kind in (
        ("GET", PATH, 405, "invalid_request_error"),
        ("POST", f"{PATH}/batches", 404, "not_found_error"),
        ("GET", COUNT, 405, "invalid_request_error"),
    ):
        reply = await client.request(method, path)
        assert (reply.status_code, error_of(reply)["type"]) == (status, kind)
    for path in (PATH, COUNT, f"{PATH}/plan"):
        broken = await client.post(path, content=b"{")
        assert (broken.status_code, error_of(broken)["code"]) == (400, "invalid_json")
        unknown = await ask(client, path, model="nope")
        assert (unknown.status_code, error_of(unknown)["type"]) == (404, "not_found_error")
        wrong = error_of(await ask(client, path, temperature="hot"))
        assert (wrong["type"], wrong["param"]) == ("invalid_request_error", "temperature")
        assert wrong["details"] == {"error_code": "invalid_value"}


async def test_errors_of_the_service(client: httpx.AsyncClient, service: FakeService) -> None:
    for error, status, kind in (
        (QueueFullError("full"), 503, "overloaded_error"),
        (EngineDeadError("dead"), 503, "overloaded_error"),
        (RuntimeError("secret"), 500, "api_error"),
    ):
        service.script = Script(start_error=error)
        reply = await ask(client)
        assert (reply.status_code, error_of(reply)["type"]) == (status, kind)
        assert "secret" not in reply.text
        service.script = Script(fail_at=2, error=error)
        last = events_of(await ask(client, stream=True))[-1]
        MessageErrorReply.model_validate(last)
        assert (last["type"], last["error"]["type"]) == ("error", kind)


async def test_a_body_that_is_too_large(service: FakeService) -> None:
    async with in_process(ServerContext(service, max_body_bytes=100)) as client:  # type: ignore[arg-type]
        reply = await ask(client, system="x" * 200)
    assert (reply.status_code, error_of(reply)["type"]) == (413, "request_too_large")


async def test_a_prompt_that_is_too_long(client: httpx.AsyncClient, service: FakeService) -> None:
    long = [{"role": "user", "content": "x" * 600}]
    error = error_of(await ask(client, messages=long))
    assert error["message"].startswith("prompt is too long: Max length reached!")
    assert (error["type"], error["code"]) == ("invalid_request_error", "context_length_exceeded")
    fields = {"messages": long, "max_tokens": 9, "foo": 1}
    counted = await ask(client, COUNT, **fields)
    assert counted.json()["input_tokens"] == len("user: \nassistant:") + 600
    assert list(records(counted)) == ["foo"]
    refused = await ask(client, COUNT, **fields, adaptations="refuse")
    assert error_of(refused)["param"] == "foo"
    service.script = Script(prepare_error=ContextLengthError("Far too long."))
    assert (await ask(client, COUNT)).status_code == 400


async def test_a_thread_is_refused_as_the_sdk_expects_it(client: httpx.AsyncClient) -> None:
    error = error_of(await ask(client, thread={"type": "create"}))
    assert (error["param"], error["details"]["error_code"]) == (
        "thread",
        "thread_unsupported_request",
    )
    assert (await ask(client, thread=False)).status_code == 200


# --- counts and models -------------------------------------------------------------------------


async def test_counts(client: httpx.AsyncClient, service: FakeService) -> None:
    fields = {"system": "Be kind.", "messages": HELLO}
    reply = await client.post(COUNT, json=fields)
    CountReply.model_validate(reply.json())
    assert reply.json() == {"input_tokens": len("system: Be kind.\nuser: hi\nassistant:")}
    assert service.requests == []
    told = await client.post(COUNT, json={**fields, "foo": 1, "temperature": 0.1})
    assert list(records(told)) == ["foo"]
    assert service.current.store.peek({}).settings.sampling.temperature == 0.8
    silent = await client.post(COUNT, json={**fields, "foo": 1, "adaptations": "silent"})
    assert records(silent) == {}
    refused = await client.post(COUNT, json={**fields, "foo": 1, "adaptations": "refuse"})
    assert error_of(refused)["code"] == "refused"


async def test_models_in_anthropics_form(client: httpx.AsyncClient) -> None:
    headers = {"anthropic-version": "2023-06-01", "x-api-key": "any"}
    listed = (await client.get("/v1/models", headers=headers)).json()
    AnthropicModelList.model_validate(listed)
    assert [model["id"] for model in listed["data"]] == ["fake:1b", "org/other:2b"]
    assert (listed["first_id"], listed["last_id"]) == ("fake:1b", "org/other:2b")
    one = (await client.get("/v1/models/fake:1b", headers=headers)).json()
    AnthropicModelReply.model_validate(one)
    assert (one["created_at"], one["max_input_tokens"]) == ("2023-11-14T22:13:20Z", 512)
    assert (await client.get("/v1/models")).json()["object"] == "list"
