"""Each sticky field on its own: it reaches every endpoint and every client."""

from typing import Any

import httpx
import pytest

from tests.e2e.conftest import DEFAULTS
from tests.support.app import RunningApp
from tests.support.replies import CHAT, COMPLETIONS, streamed, whole

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {CHAT: {"messages": HELLO}, COMPLETIONS: {"prompt": "hi"}}
VALUES: dict[str, float] = {
    "temperature": 0.0,
    "top_k": 7,
    "top_p": 0.25,
    "min_p": 0.5,
    "repetition_penalty": 1.5,
    "frequency_penalty": 0.75,
    "presence_penalty": 0.5,
    "repeat_last_n": 3,
}


def in_force(client: httpx.Client) -> dict[str, Any]:
    entries = client.get("/v1/settings").json()["settings"]
    return {entry["field"]: entry["value"] for entry in entries if entry["field"] in DEFAULTS}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("send", [whole, streamed])
def test_a_field_reaches_everybody_until_somebody_else_sends_it(
    app: RunningApp, client: httpx.Client, path: str, send: Any, name: str
) -> None:
    value = VALUES[name]
    send(client, **BODIES[path], max_tokens=1, **{name: value})
    with app.client() as other:
        for body in BODIES.values():
            for read in (whole, streamed):
                (entry,) = read(other, **body, max_tokens=1).adaptations
                assert (entry["field"], entry["action"]) == (name, "defaulted")
                assert entry["applied"] == value
        assert in_force(other) == {**DEFAULTS, name: value}
        send(other, **BODIES[path], max_tokens=1, **{name: DEFAULTS[name]})
        assert in_force(client) == DEFAULTS


def test_fields_of_several_requests_add_up(client: httpx.Client) -> None:
    for path, (name, value) in zip([*BODIES] * 4, VALUES.items(), strict=True):
        whole(client, **BODIES[path], max_tokens=1, **{name: value})
    assert in_force(client) == VALUES
    whole(client, prompt="hi", max_tokens=1, **DEFAULTS)
    assert in_force(client) == DEFAULTS


def test_a_seed_stays_with_its_request(client: httpx.Client) -> None:
    body = {"prompt": "hi", "max_tokens": 16}
    seeded = whole(client, **body, seed=5)
    assert len({seeded.text, whole(client, **body).text, whole(client, **body).text}) == 3
    assert in_force(client) == DEFAULTS


def test_a_failed_reply_leaves_what_was_admitted(app: RunningApp, client: httpx.Client) -> None:
    """The write happens at admission; what comes later does not undo it."""
    nothing_may_follow = {"min_tokens": 2, "stop_token_ids": list(range(512)), "max_tokens": 3}
    reply = client.post(COMPLETIONS, json={"prompt": "hi", "top_k": 9, **nothing_may_follow})
    assert reply.status_code == 400, reply.text
    assert in_force(client)["top_k"] == 9
    with client.stream(
        "POST", COMPLETIONS, json={"prompt": "hi", "top_k": 8, "ignore_eos": True, "stream": True}
    ) as cut:
        next(cut.iter_lines())
    app.wait_until_idle()
    assert in_force(client)["top_k"] == 8
