"""Kept responses: looked at, gone on from, let go of."""

from typing import Any

import httpx
import openai
import pytest

from flm.server.context import ServerContext
from tests.server.conftest import LiveServer, in_process, serving
from tests.server.open_responses import PATH, WEATHER, calling, respond, streamed, whole
from tests.support.fake_service import FakeInfo, FakeService, Script

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_is_kept(client: httpx.AsyncClient, stream: bool) -> None:
    if stream:
        body = (await streamed(client, bogus=1))[-1]["response"]
    else:
        body = await whole(client, bogus=1)
    kept = await client.get(f"{PATH}/{body['id']}")
    assert (kept.status_code, kept.json()) == (200, body)
    gone = await client.delete(f"{PATH}/{body['id']}")
    assert gone.json() == {"id": body["id"], "object": "response", "deleted": True}
    for reply in (
        await client.get(f"{PATH}/{body['id']}"),
        await client.delete(f"{PATH}/{body['id']}"),
        await client.get(f"{PATH}/{body['id']}/input_items"),
    ):
        error = reply.json()["error"]
        assert (reply.status_code, error["code"]) == (404, "not_found")
        assert "the last 256 at most" in error["message"]


async def test_a_response_that_is_not_to_be_kept(client: httpx.AsyncClient) -> None:
    body = await whole(client, store=False)
    assert (await client.get(f"{PATH}/{body['id']}")).status_code == 404


async def test_a_kept_response_is_not_streamed(client: httpx.AsyncClient) -> None:
    path = f"{PATH}/{(await whole(client))['id']}"
    reply = await client.get(path, params={"stream": "true"})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "stream")
    assert (await client.get(path, params={"stream": "false"})).status_code == 200


async def test_paths_beside_the_kept_ones(client: httpx.AsyncClient) -> None:
    body = await whole(client)
    for path in ("compact", "x/cancel"):
        assert (await client.post(f"{PATH}/{path}", json={})).status_code == 404
    wrong = await client.post(f"{PATH}/{body['id']}")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "DELETE, GET")
    wrong = await client.get(f"{PATH}/plan")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")


# --- going on ----------------------------------------------------------------------------------


async def test_a_conversation_goes_on(client: httpx.AsyncClient, service: FakeService) -> None:
    first = await whole(client, "one", instructions="Be brief.")
    second = await whole(client, "two", previous_response_id=first["id"], store=True)
    assert second["previous_response_id"] == first["id"]
    # Letting go of what came before takes nothing from what came after.
    await client.delete(f"{PATH}/{first['id']}")
    await whole(client, "three", previous_response_id=second["id"], instructions="Be long.")
    *_, third = service.requests
    assert third.messages == (
        {"role": "system", "content": "Be long."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "Hello, world!"},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": "Hello, world!"},
        {"role": "user", "content": "three"},
    )
    missing = await respond(client, "x", previous_response_id=first["id"])
    error = missing.json()["error"]
    assert (missing.status_code, error["code"]) == (400, "previous_response_not_found")
    assert (await client.post(f"{PATH}/plan", json={"previous_response_id": first["id"]})).json()[
        "error"
    ] == error


@pytest.mark.parametrize("name", ["reasoning", "calls", "text and calls"])
async def test_to_go_on_is_to_send_the_items(name: str) -> None:
    scripts = {
        "reasoning": Script(pieces=("Hm", "Yes"), num_reasoning=1),
        "calls": Script(events=calling()),
        "text and calls": Script(events=calling(before="Let me see.")),
    }
    service = FakeService(scripts[name], infos=[FakeInfo("fake:1b", reasons=True)])
    async with in_process(ServerContext(service)) as client:
        asked = [{"role": "developer", "content": "Rules."}, {"role": "user", "content": "ask"}]
        first = await whole(client, asked, tools=[WEATHER])
        results = [
            {"type": "function_call_output", "call_id": item["call_id"], "output": "sunny"}
            for item in first["output"]
            if item["type"] == "function_call"
        ]
        more = [*results, {"role": "user", "content": "more"}]
        await whole(client, more, previous_response_id=first["id"])
        await whole(client, [*asked, *first["output"], *more])
        references = [{"id": item["id"]} for item in first["output"]]
        await whole(client, [*asked, *references, *more])
    _, gone_on, sent, referenced = service.requests
    assert gone_on.messages == sent.messages == referenced.messages
    assert gone_on.messages is not None
    said = [message for message in gone_on.messages if message["role"] == "assistant"]
    # One turn is one message, whatever it is made of.
    assert len(said) == 1
    if name == "reasoning":
        assert said[0]["reasoning_content"] == "Hm"
    else:
        assert [call["id"] for call in said[0]["tool_calls"]] == ["call_1", "call_2"]


async def test_to_go_on_without_saying_anything(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    first = await whole(client)
    reply = await client.post(PATH, json={"previous_response_id": first["id"]})
    assert reply.status_code == 200
    assert service.requests[-1].messages == (
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Hello, world!"},
    )


async def test_an_item_that_is_not_kept(client: httpx.AsyncClient) -> None:
    for reference in ({"id": "msg_1"}, {"type": "item_reference", "id": "msg_1"}):
        reply = await respond(client, [reference])
        error = reply.json()["error"]
        assert (reply.status_code, error["param"]) == (404, "input[0].id")


# --- input items -------------------------------------------------------------------------------


async def test_items_of_one_id_can_be_paged_through(client: httpx.AsyncClient) -> None:
    first = await whole(client, [{"id": "msg_a", "role": "user", "content": "one"}])
    again = [
        {"type": "item_reference", "id": first["output"][0]["id"]},
        {"id": "msg_a", "role": "user", "content": "two"},
        {"id": "msg_a", "role": "user", "content": "three"},
    ]
    second = await whole(client, again, previous_response_id=first["id"])
    path = f"{PATH}/{second['id']}/input_items"
    found, after = [], {}
    for _ in range(5):
        page = (await client.get(path, params={"order": "asc", "limit": 1, **after})).json()
        found += page["data"]
        after = {"after": page["last_id"]}
    assert page["has_more"] is False
    assert [item["content"][0]["text"] for item in found] == [
        "one",
        "Hello, world!",
        "Hello, world!",
        "two",
        "three",
    ]
    assert len({item["id"] for item in found}) == 5
    assert [item["id"] for item in found[:2]] == ["msg_a", first["output"][0]["id"]]


async def test_a_count_tells_of_no_setting_that_does_not_matter_to_it(
    client: httpx.AsyncClient,
) -> None:
    await whole(client, temperature=0.3)
    count = (await client.post(f"{PATH}/input_tokens", json={"input": "hi"})).json()
    assert "adaptations" not in count


async def test_input_items_of_a_chain(client: httpx.AsyncClient) -> None:
    first = await whole(client, "one")
    items: list[dict[str, Any]] = [
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "id": "msg_own"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "text", "text": "r"}]},
    ]
    second = await whole(client, items, previous_response_id=first["id"])
    path = f"{PATH}/{second['id']}/input_items"
    listed = (await client.get(path, params={"order": "asc"})).json()
    data = listed["data"]
    assert [item["type"] for item in data] == [
        "message",
        "message",
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    assert data[0]["content"] == [{"type": "input_text", "text": "one"}]
    assert data[1] == first["output"][0]
    assert (data[2]["id"], data[2]["content"]) == (
        "msg_own",
        [{"type": "refusal", "refusal": "no"}],
    )
    assert data[5]["output"] == [{"type": "input_text", "text": "r"}]
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == (
        data[0]["id"],
        data[5]["id"],
        False,
    )
    assert (await client.get(path)).json()["data"] == data[::-1]
    page = (await client.get(path, params={"limit": "2", "after": data[4]["id"]})).json()
    assert ([item["id"] for item in page["data"]], page["has_more"]) == (
        [data[3]["id"], data[2]["id"]],
        True,
    )
    for name, value in (("limit", "0"), ("limit", "x"), ("order", "up"), ("after", "msg_x")):
        reply = await client.get(path, params={name: value})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, name)


# --- the SDK -----------------------------------------------------------------------------------


def test_the_sdk(live: LiveServer, service: FakeService) -> None:
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="flm", max_retries=0) as sdk:
        first = sdk.responses.create(model="fake:1b", input="hi", temperature=0.5)
        type(first).model_validate(first.model_dump(warnings=False), strict=True)
        assert first.output_text == "Hello, world!"
        assert sdk.responses.retrieve(first.id) == first
        assert len(list(sdk.responses.input_items.list(first.id, limit=1))) == 1
        with sdk.responses.stream(
            model="fake:1b", input="more", previous_response_id=first.id
        ) as events:
            texts = [event.delta for event in events if event.type == "response.output_text.delta"]
            final = events.get_final_response()
        assert "".join(texts) == final.output_text == "Hello, world!"
        assert sdk.responses.input_tokens.count(model="fake:1b", input="hi").input_tokens > 0
        sdk.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            sdk.responses.retrieve(first.id)
        service.script = Script(fail_at=1)
        with pytest.raises(openai.APIError, match="broken"):
            list(sdk.responses.create(model="fake:1b", input="hi", stream=True))


def test_a_stream_begins_before_there_is_any_text() -> None:
    service: Any = FakeService(Script(hold_at=0))
    with serving(ServerContext(service, keepalive_s=0.05)) as live:
        body = {"input": "hi", "stream": True}
        with httpx.stream("POST", f"{live.url}/v1/responses", json=body, timeout=20) as reply:
            named = (line for line in reply.iter_lines() if line.startswith("event: "))
            first = [next(named), next(named)]
    # Nothing lets the text come; the client left.
    assert first == ["event: response.created", "event: response.in_progress"]
