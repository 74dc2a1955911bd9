"""Lines that change, taken out of system messages by ``--normalize``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import tiny_config
from tests.support.app import RunningApp, running_app
from tests.support.replies import CHAT

PATTERN = "x-anthropic-billing-header: .*"
RULES = "You are the helper of a small harbour. Answer in one line and never guess anything."


@pytest.fixture(scope="module")
def normalizing(tiny_model: Path, store: Path) -> Iterator[RunningApp]:
    with running_app(tiny_config(tiny_model, normalize=("never-there", PATTERN)), store) as app:
        yield app


@pytest.fixture
def client(normalizing: RunningApp) -> Iterator[httpx.Client]:
    normalizing.model.store.reset()
    with normalizing.client() as client:
        yield client


def body(header: str, **fields: Any) -> dict[str, Any]:
    system = f"x-anthropic-billing-header: {header}\n{RULES}"
    messages = [
        {"role": "system", "content": [{"type": "text", "text": system}]},
        {"role": "user", "content": f"What is in x-anthropic-billing-header: {header}?"},
    ]
    return {"messages": messages, "max_tokens": 2, "seed": 1, **fields}


def test_two_requests_with_other_headers_share_their_start(client: httpx.Client) -> None:
    first = client.post(CHAT, json=body("cc=1; id=aaaa")).json()
    (record,) = first["adaptations"]
    assert (record["field"], record["action"]) == ("messages[0].content", "substituted")
    assert record["asked"] == "x-anthropic-billing-header: cc=1; id=aaaa"
    assert record["applied"] == ""
    assert "--normalize" in record["reason"]
    again = client.post(CHAT, json=body("cc=2; id=bbbb")).json()
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] >= 32
    plan = client.post(f"{CHAT}/plan", json=body("cc=3; id=cccc")).json()
    assert f"system\n{RULES}" in plan["prompt"]
    # What the user wrote stays.
    assert "x-anthropic-billing-header: cc=3; id=cccc?" in plan["prompt"]
    assert [entry["field"] for entry in plan["adaptations"]] == ["messages[0].content"]


def test_the_prompt_is_that_of_the_request_without_the_line(client: httpx.Client) -> None:
    with_line = body("1", max_tokens=8)
    without = body("1", max_tokens=8)
    without["messages"][0]["content"] = RULES
    one, other = (client.post(CHAT, json=item).json() for item in (with_line, without))
    assert one["choices"] == other["choices"]
    assert "adaptations" not in other


def test_who_refuses_adaptations_is_told(client: httpx.Client) -> None:
    reply = client.post(CHAT, json=body("1", adaptations="refuse"))
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert (error["code"], error["param"]) == ("refused", "messages[0].content")
    silent = client.post(CHAT, json=body("1", adaptations="silent")).json()
    assert "adaptations" not in silent


def test_an_applied_template_is_without_the_line_too(client: httpx.Client) -> None:
    shown = client.post("/apply-template", json={"messages": body("9")["messages"]}).json()
    assert f"system\n{RULES}" in shown["prompt"]
    assert shown["adaptations"][0]["field"] == "messages[0].content"
