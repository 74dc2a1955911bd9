"""think, reasoning_effort and enable_thinking."""

from typing import Any

import pytest

from flm.server.context import ServerContext
from flm.types import Settings
from tests.server.conftest import in_process, post, records
from tests.support.fake_service import FakeInfo, FakeService

pytestmark = pytest.mark.anyio


def reasoning_service(**defaults: Any) -> FakeService:
    settings = Settings(think=False, **defaults)
    return FakeService(infos=[FakeInfo("think:1b", reasons=True, defaults=settings)])


# --- reasoning ---------------------------------------------------------------------------------

EFFORTS: list[tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = [
    ({"think": True}, {"think": True}, {}),
    ({"reasoning_effort": "high"}, {"think": True, "reasoning_effort": "high"}, {}),
    ({"reasoning_effort": "none"}, {"think": False, "reasoning_effort": "none"}, {}),
    (
        {"reasoning_effort": "minimal"},
        {"think": True, "reasoning_effort": "low"},
        {"reasoning_effort": "substituted"},
    ),
    (
        {"reasoning_effort": "xhigh"},
        {"think": True, "reasoning_effort": "high"},
        {"reasoning_effort": "substituted"},
    ),
    (
        {"reasoning_effort": "max"},
        {"think": True, "reasoning_effort": "high"},
        {"reasoning_effort": "substituted"},
    ),
    (
        {"think": False, "reasoning_effort": "low"},
        {"think": True, "reasoning_effort": "low"},
        {"think": "substituted"},
    ),
    ({"think": True, "reasoning_effort": "low"}, {"think": True, "reasoning_effort": "low"}, {}),
    ({"reasoning_effort": "huge"}, {}, {"reasoning_effort": "dropped"}),
    ({"think": True, "reasoning_effort": "?"}, {"think": True}, {"reasoning_effort": "dropped"}),
]


@pytest.mark.parametrize(("fields", "sent", "recorded"), EFFORTS)
async def test_reasoning_switches(
    fields: dict[str, Any], sent: dict[str, Any], recorded: dict[str, str]
) -> None:
    service = reasoning_service()
    async with in_process(ServerContext(service)) as client:
        reply = await post(client, **fields)
    assert dict(service.requests[0].sent) == sent
    assert {name: entry["action"] for name, entry in records(reply).items()} == recorded


async def test_thinking_after_an_effort_of_none() -> None:
    service = reasoning_service(reasoning_effort="medium")
    async with in_process(ServerContext(service)) as client:
        await post(client, reasoning_effort="none")
        await post(client, think=True)
    settings = service.current.store.peek({}).settings
    assert (settings.think, settings.reasoning_effort) == (True, "medium")


@pytest.mark.parametrize(
    "fields",
    [{"enable_thinking": True}, {"chat_template_kwargs": {"enable_thinking": True, "x": None}}],
)
async def test_enable_thinking_is_for_one_request(fields: dict[str, Any]) -> None:
    service = reasoning_service()
    async with in_process(ServerContext(service)) as client:
        assert records(await post(client, **fields)) == {}
        assert service.requests[0].template_kwargs == {"enable_thinking": True}
        assert dict(service.requests[0].sent) == {}
        conflict = records(await post(client, think=False, **fields))
    assert conflict["think"]["action"] == "substituted"
    assert dict(service.requests[1].sent) == {"think": False}


async def test_an_inherited_think_that_does_not_act_is_not_told() -> None:
    service = reasoning_service()
    async with in_process(ServerContext(service)) as client:
        await post(client, think=True)
        assert records(await post(client))["think"]["applied"] is True
        assert records(await post(client, enable_thinking=False)) == {}
        assert records(await post(client, "/v1/completions")) == {}


# --- a template with another name for the switch -----------------------------------------------


def service_of_own_switch() -> FakeService:
    info = FakeInfo(
        "think:1b", reasons=True, thinking_switch="thinking", defaults=Settings(think=False)
    )
    return FakeService(infos=[info])


@pytest.mark.parametrize(
    ("given", "switch", "recorded"),
    [
        ({"thinking": True}, {"enable_thinking": True}, {}),
        ({"enable_thinking": True}, {"enable_thinking": True}, {}),
        (
            {"enable_thinking": True, "thinking": False},
            {"enable_thinking": True},
            {"chat_template_kwargs.thinking": "substituted"},
        ),
        ({"thinking": "much"}, {"thinking": "much"}, {}),
    ],
)
async def test_the_templates_own_name_acts_too(
    given: dict[str, Any], switch: dict[str, Any], recorded: dict[str, str]
) -> None:
    service = service_of_own_switch()
    async with in_process(ServerContext(service)) as client:
        reply = await post(client, chat_template_kwargs=given)
    assert service.requests[0].template_kwargs == switch
    assert {name: entry["action"] for name, entry in records(reply).items()} == recorded
