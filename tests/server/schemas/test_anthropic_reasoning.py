"""Whether to reason, how much, and the form of the answer, in Anthropic's dialect."""

from typing import Any

import httpx
import pytest

from flm.server.context import ServerContext
from flm.types import Settings
from tests.server.conftest import in_process, records
from tests.server.schemas.conftest import SCHEMA, TOOL, ask, fault, request_of
from tests.support.fake_service import FakeInfo, FakeService

pytestmark = pytest.mark.anyio

ON = {"type": "enabled"}
OFF = {"type": "disabled"}
REASONING: list[tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = [
    ({"thinking": ON}, {"think": True}, {}),
    ({"thinking": {"type": "adaptive"}}, {"think": True}, {}),
    ({"thinking": OFF}, {"think": False}, {}),
    (
        {"thinking": {**ON, "budget_tokens": 2048, "display": "summarized"}},
        {"think": True},
        {"thinking.budget_tokens": "dropped", "thinking.display": "dropped"},
    ),
    ({"output_config": {"effort": "high"}}, {"think": True, "reasoning_effort": "high"}, {}),
    (
        {"thinking": ON, "output_config": {"effort": "max"}},
        {"think": True, "reasoning_effort": "high"},
        {"output_config.effort": "substituted"},
    ),
    (
        {"thinking": OFF, "output_config": {"effort": "low"}},
        {"think": False},
        {"output_config.effort": "dropped"},
    ),
    ({"thinking": OFF, "output_config": {"effort": "none"}}, {"think": False}, {}),
    ({"output_config": {"effort": "?"}}, {}, {"output_config.effort": "dropped"}),
    (
        {"output_config": {"effort": "low"}, "reasoning_effort": "high"},
        {"think": True, "reasoning_effort": "low"},
        {"reasoning_effort": "dropped"},
    ),
    ({"reasoning_effort": "low"}, {"think": True, "reasoning_effort": "low"}, {}),
    ({"think": True}, {"think": True}, {}),
    ({"think": True, "thinking": OFF}, {"think": False}, {"think": "dropped"}),
    ({"think": True, "thinking": ON}, {"think": True}, {}),
    ({"thinking": ON, "enable_thinking": False}, {"think": True}, {"thinking": "substituted"}),
]


@pytest.mark.parametrize(("fields", "sent", "recorded"), REASONING)
async def test_reasoning(
    fields: dict[str, Any], sent: dict[str, Any], recorded: dict[str, str]
) -> None:
    infos = [FakeInfo("think:1b", reasons=True, defaults=Settings(think=False))]
    service = FakeService(infos=infos)
    async with in_process(ServerContext(service)) as client:  # type: ignore[arg-type]
        reply = await ask(client, **fields)
        told = records(reply)
        assert dict(service.requests[0].sent) == sent
        assert {name: entry["action"] for name, entry in told.items()} == recorded
        if sent.get("think"):
            # What stuck is told by the names of whoever asks next.
            assert "thinking" in records(await ask(client))


async def test_reasoning_of_a_model_that_does_not(client: httpx.AsyncClient) -> None:
    told = records(await ask(client, thinking=ON, output_config={"effort": "low"}))
    assert {name: (entry["action"], entry["asked"]) for name, entry in told.items()} == {
        "thinking": ("dropped", "enabled"),
        "output_config.effort": ("dropped", "low"),
    }


async def test_formats(client: httpx.AsyncClient, service: FakeService) -> None:
    wanted = {"type": "json_schema", "schema": SCHEMA}
    for fields, param in (
        ({"output_config": {"format": wanted}}, "output_config.format.schema"),
        ({"output_format": wanted}, "output_format.schema"),
    ):
        constraint = (await request_of(client, service, **fields)).constraint
        assert constraint is not None
        assert (constraint.kind, constraint.value, constraint.param) == ("json", SCHEMA, param)
        forced = await ask(client, **fields, tools=[TOOL], tool_choice={"type": "any"})
        assert list(records(forced)) == [param.removesuffix(".schema")]
    both = {"output_config": {"format": wanted}, "output_format": wanted}
    assert (await fault(client, **both))[0] == "output_format"
