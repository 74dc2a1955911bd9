"""The local server's own record and refusals, as the router passes them on."""

from typing import Any

import pytest

from flm.router import Config, Message, Request, StreamStart, UnsupportedFeatureError
from tests.support.providers import Scripted, chat_events, chat_reply, router_of, streamed, whole

THEIRS = [
    {"field": "temperature", "action": "dropped", "reason": "r1.", "asked": 9.0},
    {"field": "reasoning_effort", "action": "dropped", "reason": "r2."},
    {"field": "max_tokens", "action": "clamped", "reason": "r3.", "asked": 9, "applied": 5},
    {"field": "messages[0].name", "action": "dropped", "reason": "r4."},
    {"field": "top_p", "action": "defaulted", "reason": "r5.", "applied": 0.9},
]
TOLD = [
    ("config.presence_penalty", "clamped"),
    ("config.temperature", "dropped"),
    ("config.reasoning.effort", "dropped"),
    ("config.max_tokens", "clamped"),
    ("wire.messages[0].name", "dropped"),
    ("config.top_p", "defaulted"),
]
ASKED = Request(
    model="flm:m", messages=[Message.user("hi")], config=Config(presence_penalty=-1, max_tokens=9)
)


def told(entries: Any) -> list[tuple[str, str]]:
    return [(entry.field, entry.action) for entry in entries]


def test_the_servers_records_come_after_the_routers() -> None:
    router = router_of(Scripted(chat_reply("x", adaptations=THEIRS)))
    response = router.complete(ASKED)
    assert told(response.adaptations) == TOLD
    assert response.adaptations[3].applied == 5
    assert told(router.plan(ASKED)) == TOLD[:1]


def test_in_a_stream_they_come_with_the_start() -> None:
    first, *rest = chat_events("a", "b")
    router = router_of(Scripted(streamed({**first, "adaptations": THEIRS}, *rest)))
    start, *_ = router.stream(ASKED)
    assert isinstance(start, StreamStart)
    assert told(start.adaptations) == TOLD


def test_silent_leaves_both_off() -> None:
    transport = Scripted(chat_reply("x", adaptations=THEIRS))
    response = router_of(transport, adaptations="silent").complete(ASKED)
    assert response.adaptations == ()
    assert transport.body["adaptations"] == "silent"


def test_the_server_refuses_what_the_router_could_not_know() -> None:
    error = {
        "message": "max_tokens would be clamped",
        "type": "invalid_request_error",
        "code": "refused",
        "param": "max_tokens",
    }
    transport = Scripted(whole({"error": error}, 400))
    router = router_of(transport, adaptations="refuse")
    plain = Request(model="flm:m", messages=[Message.user("hi")], config=Config(max_tokens=9))
    for act in (router.complete, lambda request: router.stream(request).response):
        with pytest.raises(UnsupportedFeatureError) as caught:
            act(plain)
        assert caught.value.feature == "config.max_tokens"
        assert caught.value.status == 400
    assert transport.body["adaptations"] == "refuse"
