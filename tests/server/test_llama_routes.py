"""llama-server's endpoints beside ``/completion``: text and tokens, the server and its places."""

from typing import Any

import httpx
import pytest

from flm.server.schemas.llama_replies import (
    DetokenizeReply,
    PropsReply,
    SlotReply,
    TemplateReply,
    TokenizeReply,
)
from tests.server.conftest import HELLO, records
from tests.support.fake_service import VOCAB_SIZE, FakeService

pytestmark = pytest.mark.anyio


async def complete(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await client.post("/completion", json={"prompt": "hi", **fields})


# --- text and tokens ---------------------------------------------------------------------------


async def test_tokenize(client: httpx.AsyncClient) -> None:
    async def tokens(**body: Any) -> Any:
        reply = (await client.post("/tokenize", json=body)).json()
        TokenizeReply.model_validate(reply)
        return reply["tokens"]

    assert await tokens(content="ab") == [97, 98]
    assert await tokens(content="ab", add_special=True) == [1, 97, 98]
    assert await tokens(content="<end>") == [255]
    assert len(await tokens(content="<end>", parse_special=False)) == 5
    pieces = await tokens(content="aé", with_pieces=True)
    assert pieces == [{"id": 97, "piece": "a"}, {"id": 233, "piece": [233]}]


async def test_detokenize(client: httpx.AsyncClient) -> None:
    reply = (await client.post("/detokenize", json={"tokens": [104, 105]})).json()
    DetokenizeReply.model_validate(reply)
    assert reply == {"content": "hi"}
    for tokens in ([VOCAB_SIZE], [-1], ["a"], "a"):
        wrong = await client.post("/detokenize", json={"tokens": tokens})
        assert wrong.status_code == 400
        assert wrong.json()["error"]["param"].startswith("tokens")


@pytest.mark.parametrize(
    ("path", "body"), [("/tokenize", {"content": "a"}), ("/detokenize", {"tokens": [65]})]
)
async def test_unknown_fields_and_models_of_text(
    client: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    told = await client.post(path, json={**body, "with_piece": 1})
    assert records(told)["with_piece"]["action"] == "dropped"
    silent = await client.post(path, json={**body, "x": 1, "adaptations": "silent"})
    assert "adaptations" not in silent.json()
    refused = await client.post(path, json={**body, "x": 1, "adaptations": "refuse"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "x")
    assert (await client.post(path, json={**body, "model": "nope"})).status_code == 404
    assert (await client.post(path, json={})).status_code == 400
    assert (await client.get(path)).status_code == 405


async def test_apply_template(client: httpx.AsyncClient, service: FakeService) -> None:
    body = {"messages": HELLO, "temperature": 0}
    reply = (await client.post("/apply-template", json=body)).json()
    TemplateReply.model_validate(reply)
    assert reply == {"prompt": "user: hi\nassistant:"}
    assert service.current.store.peek({}).inherited == ()
    await complete(client, top_k=5)
    again = (await client.post("/apply-template", json=body)).json()
    assert again == reply
    closed = await client.post("/apply-template", json={**body, "add_generation_prompt": False})
    assert closed.json() == {"prompt": "user: hi"}
    assert (await client.post("/apply-template", json={"messages": []})).status_code == 400


# --- the server --------------------------------------------------------------------------------


async def test_props(client: httpx.AsyncClient) -> None:
    await complete(client, top_k=5)
    reply = (await client.get("/props")).json()
    PropsReply.model_validate(reply)
    assert (reply["total_slots"], reply["model_alias"]) == (2, "fake:1b")
    assert (reply["chat_template"], reply["eos_token"]) == ("{{ messages }}", "<end>")
    assert reply["default_generation_settings"]["params"]["top_k"] == 5
    assert (await client.post("/props", json={})).status_code == 405


async def test_slots(client: httpx.AsyncClient, service: FakeService) -> None:
    free = (await client.get("/slots")).json()
    assert [slot["is_processing"] for slot in free] == [False, False]
    await complete(client, n_predict=3, top_k=9)
    slots = (await client.get("/slots?fail_on_no_slot=1")).json()
    for slot in slots:
        SlotReply.model_validate(slot)
    assert [slot["is_processing"] for slot in slots] == [True, False]
    assert slots[0]["params"]["n_predict"] == 3
    assert slots[0]["next_token"] == {"has_next_token": True, "n_remain": 2, "n_decoded": 1}
    service.places = lambda model: service_places(service)  # type: ignore[method-assign,assignment]
    full = await client.get("/slots?fail_on_no_slot=1")
    assert (full.status_code, full.headers["retry-after"]) == (503, "1")


def service_places(service: FakeService) -> list[Any]:
    return FakeService.places(service, service.current)[:1]


async def test_other_models_are_swapped_in_as_everywhere(client: httpx.AsyncClient) -> None:
    assert (await complete(client, model="org/other:2b")).json()["model"] == "org/other:2b"
    assert (await complete(client, model="nope")).status_code == 404
