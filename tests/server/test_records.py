"""What was done other than asked: told, hidden or refused."""

from typing import Any

import httpx
import pytest

from flm.server.context import ServerContext
from flm.server.schemas.chat import ChatBody
from tests.server.conftest import in_process, post, records
from tests.support.fake_service import FakeService

pytestmark = pytest.mark.anyio


async def test_the_order_is_the_schemas_then_the_bodys(client: httpx.AsyncClient) -> None:
    await post(client, presence_penalty=1)
    fields = {"zeta": 1, "min_p": 2, "alpha": 1, "temperature": -1, "max_tokens": 9999}
    message = {"role": "user", "content": "x", "weight": 1}
    reply = await client.post(
        "/v1/chat/completions", json={"zeta2": 1, **fields, "messages": [message]}
    )
    listed = [entry["field"] for entry in reply.json()["adaptations"]]
    expected = ["temperature", "min_p", "presence_penalty", "max_tokens", "messages[0].weight"]
    assert listed == [*expected, "zeta2", "zeta", "alpha"]
    known = list(ChatBody.model_fields)
    assert known.index("temperature") < known.index("min_p") < known.index("presence_penalty")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("temprature", "temperature"),
        ("topP", "top_p"),
        ("max-tokens", "max_tokens"),
        ("repeat_penalty", "repetition_penalty"),
        ("Stream", "stream"),
    ],
)
async def test_misspelt_fields_get_a_suggestion(
    client: httpx.AsyncClient, name: str, meant: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG", logger="flm"):
        entry = records(await post(client, **{name: 1}))[name]
    assert f"Did you mean {meant}?" in entry["reason"]
    assert name not in caplog.text


@pytest.mark.parametrize("name", ["functions", "function_call", "zzz", "x" * 1000, "", "a.b", "é"])
async def test_unknown_fields_are_told_without_a_guess(
    client: httpx.AsyncClient, name: str
) -> None:
    entry = records(await post(client, **{name: [1]}))[name]
    assert entry["action"] == "dropped"
    assert "Did you mean" not in entry["reason"]


async def test_values_no_record_can_carry(client: httpx.AsyncClient) -> None:
    listed = records(await post(client, a=10**300, b="x" * 10_000, c=[[1]], d=1.5, e=False))
    assert {name: entry.get("asked") for name, entry in listed.items()} == {
        "a": None,
        "b": None,
        "c": None,
        "d": 1.5,
        "e": False,
    }


async def test_very_many_unknown_fields(client: httpx.AsyncClient) -> None:
    fields = {f"temperatur{index}": 1 for index in range(5000)}
    assert len(records(await post(client, **fields))) == 5000


async def test_nested_options_are_explained(client: httpx.AsyncClient) -> None:
    entry = records(await post(client, options={"repeat_last_n": 3}))["options"]
    assert "top level" in entry["reason"]


INERT: dict[str, Any] = {
    "user": "me",
    "metadata": {"a": "b"},
    "safety_identifier": "x",
    "prompt_cache_key": "x",
    "add_generation_prompt": False,
    "service_tier": "auto",
    "store": False,
    "stream_options": {"include_usage": True, "include_obfuscation": False},
    "tools": [],
    "stop": "",
    "logit_bias": {},
    "response_format": {"type": "text", "schema": None, "json_schema": {}},
    "parallel_tool_calls": False,
    "unknown": None,
}


@pytest.mark.parametrize(("name", "value"), INERT.items())
async def test_what_needs_no_record(client: httpx.AsyncClient, name: str, value: Any) -> None:
    assert records(await post(client, **{name: value})) == {}


NAMED: dict[str, Any] = {"type": "function", "function": {"name": "f"}}
TOOLS: dict[str, Any] = {"tools": [NAMED]}
WITHOUT_EFFECT: list[tuple[dict[str, Any], str]] = [
    ({"store": True}, "store"),
    ({"service_tier": "flex"}, "service_tier"),
    ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
    ({"stream_options": {"x": 1}}, "stream_options.x"),
    ({"max_tokens": 3, "max_completion_tokens": 4}, "max_completion_tokens"),
    ({"think": True}, "think"),
    ({"reasoning_effort": "low"}, "reasoning_effort"),
    ({"enable_thinking": True}, "enable_thinking"),
    (
        {"chat_template_kwargs": {"enable_thinking": False, "x": 1}},
        "chat_template_kwargs.enable_thinking",
    ),
    ({"response_format": {"type": "text", "schema": {"type": "null"}}}, "response_format.schema"),
    (
        {"response_format": {"type": "json_object", "json_schema": {"schema": {"a": 1}}}},
        "response_format.json_schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strct": True}}},
        "response_format.json_schema.strct",
    ),
    ({**TOOLS, "tool_choice": {**NAMED, "parallel": False}}, "tool_choice.parallel"),
    (
        {**TOOLS, "tool_choice": {"type": "function", "function": {"name": "f", "strict": True}}},
        "tool_choice.function.strict",
    ),
    (
        {
            **TOOLS,
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [NAMED, {**NAMED, "x": 1}]},
            },
        },
        "tool_choice.allowed_tools.tools[1].x",
    ),
]


@pytest.mark.parametrize(("fields", "name"), WITHOUT_EFFECT)
async def test_what_has_no_effect_is_told(
    client: httpx.AsyncClient, service: FakeService, fields: dict[str, Any], name: str
) -> None:
    reply = await post(client, **fields)
    assert [*records(reply)] == [name]
    assert records(reply)[name]["action"] == "dropped"
    assert "think" not in service.requests[-1].sent
    refused = await post(client, **fields, adaptations="refuse")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, name)


async def test_a_suffix_is_told(client: httpx.AsyncClient) -> None:
    assert [*records(await post(client, "/v1/completions", suffix="end"))] == ["suffix"]
    assert records(await post(client, "/v1/completions", suffix="")) == {}


# --- modes -------------------------------------------------------------------------------------


async def test_silent_changes_the_record_only(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    noted = await post(client, temprature=1, top_k=10**6, max_tokens=10**6)
    silent = await post(client, temprature=1, top_k=10**6, max_tokens=10**6, adaptations="silent")
    assert "adaptations" in noted.json()
    assert "adaptations" not in silent.json()
    first, second = service.requests
    assert (first.settings, first.max_tokens) == (second.settings, second.max_tokens)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"top_k": 10**6}, "top_k"),
        ({"max_tokens": 10**6}, "max_tokens"),
        ({"max_completion_tokens": 10**6}, "max_completion_tokens"),
        ({"temprature": 1, "top_p": 3}, "top_p"),
        ({"foo": 1, "bar": 1}, "foo"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_refuse_touches_nothing(
    client: httpx.AsyncClient,
    service: FakeService,
    fields: dict[str, Any],
    param: str,
    stream: bool,
) -> None:
    reply = await post(client, **fields, min_p=0.5, stream=stream, adaptations="refuse")
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (400, "refused", param)
    assert error["type"] == "invalid_request_error"
    assert service.requests == []
    assert service.num_leases == 0
    assert service.current.store.peek({}).inherited == ()


async def test_refuse_accepts_what_is_done_as_asked(client: httpx.AsyncClient) -> None:
    await post(client, temperature=0.3)
    reply = await post(client, top_p=0.5, adaptations="refuse")
    assert records(reply)["temperature"]["action"] == "defaulted"


async def test_the_server_sets_the_default_mode(service: FakeService) -> None:
    async with in_process(ServerContext(service, adaptations="refuse")) as client:
        assert (await post(client, x=1)).status_code == 400
        assert records(await post(client, x=1, adaptations="note")).keys() == {"x"}


async def test_a_variable_the_chat_template_does_not_read_is_told(
    client: httpx.AsyncClient,
) -> None:
    body = {"chat_template_kwargs": {"enable_thinkng": True}}
    assert [*records(await post(client, **body))] == ["chat_template_kwargs.enable_thinkng"]
    refused = await post(client, **body, adaptations="refuse")
    assert refused.json()["error"]["param"] == "chat_template_kwargs.enable_thinkng"


async def test_a_limit_of_zero_or_below_is_no_limit(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    assert records(await post(client, max_tokens=-1, max_completion_tokens=5)) == {}
    assert service.requests[-1].max_tokens == 5
