"""What each field does to the request, and what the record says of it."""

import json
import math
from typing import Any

import httpx
import pytest

from flm.server.settings import RANGES
from flm.sticky import SAMPLING_FIELDS
from tests.server.conftest import HELLO, PATHS, post, records
from tests.support.fake_service import VOCAB_SIZE, FakeService

pytestmark = pytest.mark.anyio


LEGAL: dict[str, list[Any]] = {
    "temperature": [0, 0.5, 1, 2, 1e300, 5e-324],
    "top_k": [1, 40, VOCAB_SIZE],
    "top_p": [0, 0.5, 1, 1.0],
    "min_p": [0, 0.05, 1],
    "repetition_penalty": [1, 1.1, 0.5, 1e-300, 1e300],
    "frequency_penalty": [0, 1.5, 1e300],
    "presence_penalty": [0, 1.5, 1e300],
    "repeat_last_n": [-1, 0, 64, 2**40],
}
OUTSIDE: dict[str, list[Any]] = {
    "temperature": [-1, -1e300, -5e-324],
    "top_k": [0, -5, -(2**63)],
    "top_p": [-0.1, 1.1, 1e300],
    "min_p": [-0.1, 1.1],
    "repetition_penalty": [0, -1],
    "frequency_penalty": [-0.1, -2],
    "presence_penalty": [-2, -1e300],
}
WRONG: list[Any] = [True, False, "1", "", "high", [], {}, [1], {"value": 1}, 10**400, -(10**400)]
WRONG_INTEGERS: list[Any] = [1.5, 64.0, 1e3, 2**63, -(2**63) - 1]
INTEGERS = ("top_k", "repeat_last_n", "seed")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in LEGAL.items() for value in values]
)
async def test_legal_values_are_in_force(
    client: httpx.AsyncClient, service: FakeService, path: str, name: str, value: Any
) -> None:
    reply = await post(client, path, **{name: value})
    assert records(reply) == {}
    request = service.requests[-1]
    assert getattr(request.settings.sampling, name) == value
    assert dict(request.sent) == {name: value}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in OUTSIDE.items() for value in values]
)
async def test_values_outside_are_ignored_and_told(
    client: httpx.AsyncClient,
    service: FakeService,
    path: str,
    name: str,
    value: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = getattr(service.current.info.defaults.sampling, name)
    with caplog.at_level("WARNING", logger="flm"):
        reply = await post(client, path, **{name: value})
    entry = records(reply)[name]
    assert entry["action"] == "dropped"
    assert entry["asked"] == value
    assert "applied" not in entry
    assert f"{kept} is kept" in entry["reason"]
    assert RANGES[name].text in entry["reason"]
    assert dict(service.requests[-1].sent) == {}
    assert getattr(service.requests[-1].settings.sampling, name) == kept
    assert f"Warning: {reply.headers['x-request-id']}: {name} " in _as_logged(caplog)


@pytest.mark.parametrize("name", [*SAMPLING_FIELDS, "seed"])
async def test_wrong_types_are_errors(
    client: httpx.AsyncClient, service: FakeService, name: str
) -> None:
    for value in WRONG + (WRONG_INTEGERS if name in INTEGERS else []):
        reply = await post(client, **{name: value})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, name), value
        assert reply.json()["error"]["code"] == "invalid_value"
    assert service.requests == []


@pytest.mark.parametrize("name", [*SAMPLING_FIELDS, "seed"])
@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "01", "+1"])
async def test_numbers_json_does_not_have(client: httpx.AsyncClient, name: str, token: str) -> None:
    raw = f'{{"messages": {json.dumps(HELLO)}, "{name}": {token}}}'
    reply = await client.post("/v1/chat/completions", content=raw.encode())
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_json")


@pytest.mark.parametrize("value", [-2, -(2**63)])
async def test_repeat_last_n_below_its_range_is_an_error(
    client: httpx.AsyncClient, value: int
) -> None:
    reply = await post(client, repeat_last_n=value)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "repeat_last_n")


@pytest.mark.parametrize("value", [0, -1, -(2**63), 2**63 - 1])
async def test_any_64_bit_seed(client: httpx.AsyncClient, service: FakeService, value: int) -> None:
    await post(client, seed=value)
    assert service.requests[-1].seed == value
    assert "seed" not in service.requests[-1].sent


async def test_top_k_above_the_vocabulary_is_clamped(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    entry = records(await post(client, top_k=2**62))["top_k"]
    assert (entry["action"], entry["asked"], entry["applied"]) == ("clamped", 2**62, VOCAB_SIZE)
    assert service.requests[-1].settings.sampling.top_k == VOCAB_SIZE


async def test_settings_stick_and_say_so(client: httpx.AsyncClient, service: FakeService) -> None:
    first = await post(client, temperature=0.1, top_p=0.9)
    entry = records(await post(client, "/v1/completions"))["temperature"]
    assert (entry["action"], entry["applied"]) == ("defaulted", 0.1)
    assert first.json()["id"] in entry["reason"]
    assert "asked" not in entry
    # 0.9 is the default; inheriting it changes nothing.
    assert records(await post(client, temperature=0.8)) == {}
    assert service.requests[1].settings.sampling.temperature == 0.1


# --- the other fields --------------------------------------------------------------------------


async def test_messages_become_plain(client: httpx.AsyncClient, service: FakeService) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {
            "role": "developer",
            "content": [{"type": "text", "text": "a", "cache_control": {"x": 1}}],
        },
        {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call],
            "refusal": None,
            "annotations": [],
        },
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
    ]
    reply = await client.post("/v1/chat/completions", json={"messages": messages})
    assert [*records(reply)] == ["messages[0].content[0].cache_control"]
    assert service.requests[0].messages == (
        {"role": "developer", "content": "a"},
        {"role": "user", "content": "bc"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
    )


async def test_a_reply_can_be_sent_back_as_it_came(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    """SDKs put the whole message of a reply into the history."""
    hello = {"role": "user", "content": "Hello"}
    first = await client.post("/v1/chat/completions", json={"messages": [hello]})
    message = first.json()["choices"][0]["message"]
    body = {"messages": [hello, message, hello], "adaptations": "refuse"}
    assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
    assert service.requests[-1].messages is not None
    assert service.requests[-1].messages[1] == {
        "role": "assistant",
        "content": message["content"],
    }


async def test_an_earlier_refusal_is_read_as_text(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "refusal": "I cannot."},
        {"role": "user", "content": "b"},
    ]
    reply = await client.post("/v1/chat/completions", json={"messages": messages})
    assert records(reply) == {}
    assert service.requests[-1].messages is not None
    assert service.requests[-1].messages[1] == {"role": "assistant", "content": "I cannot."}


MAX_TOKENS: list[tuple[str, dict[str, Any], int | None]] = [
    (PATHS[0], {}, None),
    (PATHS[0], {"max_tokens": 0}, None),
    (PATHS[0], {"max_tokens": -5}, None),
    (PATHS[0], {"max_tokens": 5}, 5),
    (PATHS[0], {"max_completion_tokens": 5}, 5),
    (PATHS[0], {"max_completion_tokens": 5, "max_tokens": 5}, 5),
    (PATHS[1], {"max_tokens": 0}, None),
    (PATHS[1], {"max_tokens": 0, "echo": True}, 0),
    (PATHS[1], {"max_tokens": -1, "echo": True}, None),
]


@pytest.mark.parametrize(("path", "fields", "expected"), MAX_TOKENS)
async def test_max_tokens(
    client: httpx.AsyncClient,
    service: FakeService,
    path: str,
    fields: dict[str, Any],
    expected: int | None,
) -> None:
    assert records(await post(client, path, **fields)) == {}
    assert service.requests[-1].max_tokens == expected


async def test_the_rest_of_the_fields(client: httpx.AsyncClient, service: FakeService) -> None:
    fields = {
        "n": 3,
        "min_tokens": 2,
        "max_tokens": 3,
        "stop": ["a", "", "b"],
        "stop_token_ids": [5, 5, 6],
        "ignore_eos": True,
        "logit_bias": {"7": -100, "0": 0.5},
        "logprobs": True,
        "top_logprobs": 4,
        "cache_prompt": False,
        "model": "fake:1b",
    }
    assert records(await post(client, **fields)) == {}
    request = service.requests[0]
    assert (request.n, request.min_tokens, request.max_tokens) == (3, 2, 3)
    assert (request.stop, request.stop_token_ids) == (("a", "b"), frozenset({5, 6}))
    assert (request.ignore_eos, request.cache_prompt, request.top_logprobs) == (True, False, 4)
    assert request.logit_bias == ((7, -100.0), (0, 0.5))
    assert math.isclose(request.settings.sampling.temperature, 0.8)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logit_bias": {str(VOCAB_SIZE): 1}}, "logit_bias"),
        ({"stop_token_ids": [VOCAB_SIZE]}, "stop_token_ids"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"model": "nope"}, "model"),
        ({"model": ""}, "model"),
        ({"model": 5}, "model"),
    ],
)
async def test_what_only_the_model_can_judge(
    client: httpx.AsyncClient, service: FakeService, fields: dict[str, Any], param: str
) -> None:
    reply = await post(client, **fields)
    assert reply.status_code in (400, 404)
    assert reply.json()["error"]["param"] == param
    assert service.num_leases == 0


def _as_logged(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(f"{r.levelname.capitalize()}: {r.getMessage()}" for r in caplog.records)
