"""What is ignored is ignored: no error, no effect, and nothing worse than the promised record."""

from typing import Any

import httpx
import pytest

from flm.server.context import ServerContext
from flm.types import SamplingParams, Settings
from tests.server.conftest import PATHS, in_process, post, records
from tests.support.fake_service import FakeInfo, FakeService

pytestmark = pytest.mark.anyio

# Sent by SDKs, frameworks and other servers' clients, or misspelt.
UNREAD: dict[str, Any] = {
    "temprature": 0.1,
    "functions": [{"name": "f"}],
    "function_call": "auto",
    "modalities": ["text"],
    "prediction": {"type": "content", "content": "x"},
    "web_search_options": {},
    "verbosity": "low",
    "best_of": 4,
    "use_beam_search": True,
    "length_penalty": 1.2,
    "mirostat": 2,
    "top_a": 0.1,
    "keep_alive": "5m",
    "options": {"repeat_last_n": 3, "temperature": 0},
    "repeat_last": 5,
    "extra_body": {"top_k": 1},
    "Temperature": 0,
    "x": None,
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", UNREAD)
async def test_a_field_nobody_reads_is_ignored_without_a_log_line(
    client: httpx.AsyncClient,
    service: FakeService,
    caplog: pytest.LogCaptureFixture,
    path: str,
    stream: bool,
    name: str,
) -> None:
    await post(client, path, stream=stream)
    with caplog.at_level("DEBUG", logger="flm"):
        reply = await post(client, path, stream=stream, **{name: UNREAD[name]})
    assert reply.status_code == 200
    assert not [record for record in caplog.records if record.name == "flm"]
    plain, given = service.requests
    assert (given.settings, given.sent, given.max_tokens) == (plain.settings, {}, plain.max_tokens)
    assert (f'"field":"{name}"' in reply.text) == (UNREAD[name] is not None)


@pytest.mark.parametrize("path", PATHS)
async def test_nested_options_set_nothing(
    client: httpx.AsyncClient, service: FakeService, path: str
) -> None:
    options = {"repeat_last_n": 3, "temperature": 0, "seed": 1, "num_predict": 1}
    entry = records(await post(client, path, options=options))["options"]
    assert (entry["action"], "top level" in entry["reason"]) == ("dropped", True)
    (request,) = service.requests
    assert request.settings == service.current.info.defaults
    assert (request.seed, request.max_tokens) == (None, None)
    assert service.current.store.peek({}).inherited == ()
    await post(client, path, options=options, repeat_last_n=5)
    assert service.requests[-1].settings.sampling.repeat_last_n == 5


async def test_add_generation_prompt_is_not_read(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    for value in (True, False, None):
        assert records(await post(client, add_generation_prompt=value)) == {}
    one, two, three = service.requests
    assert one.messages == two.messages == three.messages
    assert not one.continue_final_message


# --- values out of range -----------------------------------------------------------------------

IN_AND_OUT: dict[str, tuple[Any, list[Any]]] = {
    "temperature": (0.3, [-0.5]),
    "top_k": (7, [0, -1]),
    "top_p": (0.4, [-0.1, 1.5]),
    "min_p": (0.02, [-1, 2]),
    "repetition_penalty": (1.2, [0, -1]),
    "frequency_penalty": (0.6, [-2]),
    "presence_penalty": (0.7, [-2]),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", IN_AND_OUT)
async def test_a_value_out_of_range_keeps_the_one_that_sticks(
    client: httpx.AsyncClient,
    service: FakeService,
    caplog: pytest.LogCaptureFixture,
    path: str,
    stream: bool,
    name: str,
) -> None:
    kept, outside = IN_AND_OUT[name]
    await post(client, path, **{name: kept})
    for value in outside:
        caplog.clear()
        with caplog.at_level("INFO", logger="flm"):
            reply = await post(client, path, stream=stream, **{name: value})
        assert reply.status_code == 200
        (line,) = [record for record in caplog.records if record.name == "flm"]
        assert line.levelname == "WARNING"
        for told in (name, str(value), str(kept)):
            assert told in line.getMessage()
        assert getattr(service.requests[-1].settings.sampling, name) == kept
    entry = records(await post(client, path))[name]
    assert (entry["action"], entry["applied"]) == ("defaulted", kept)


async def test_a_repetition_penalty_below_one_is_a_warning_and_in_force(
    client: httpx.AsyncClient, service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="flm"):
        assert records(await post(client, repetition_penalty=0.9)) == {}
        assert records(await post(client, repetition_penalty=1.0)) == {}
    (line,) = [record for record in caplog.records if record.name == "flm"]
    assert (line.levelname, "loop" in line.getMessage()) == ("WARNING", True)
    sent = [request.settings.sampling.repetition_penalty for request in service.requests]
    assert sent == [0.9, 1.0]


# --- a default that is switched off ------------------------------------------------------------


async def test_a_penalty_of_zero_switches_the_models_default_off_until_a_reload() -> None:
    settings = Settings(SamplingParams(presence_penalty=1.5, top_k=20))
    service = FakeService(infos=[FakeInfo("keen:4b", defaults=settings)])
    async with in_process(ServerContext(service)) as client:
        await post(client)
        await post(client, presence_penalty=0)
        for path in PATHS:
            entry = records(await post(client, path))["presence_penalty"]
            assert (entry["action"], entry["applied"]) == ("defaulted", 0)
        await service.reload()
        assert records(await post(client)) == {}
    in_force = [request.settings.sampling.presence_penalty for request in service.requests]
    assert in_force == [1.5, 0, 0, 0, 1.5]
    assert {request.settings.sampling.top_k for request in service.requests} == {20}


# --- the two strict fields ---------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PATHS, *(f"{path}/plan" for path in PATHS)])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["seed", "repeat_last_n"])
async def test_the_strict_fields_take_integers_only(
    client: httpx.AsyncClient, service: FakeService, path: str, stream: bool, name: str
) -> None:
    below = [-2, -(2**63)] if name == "repeat_last_n" else [-(2**63) - 1, 2**63]
    base: dict[str, Any] = {"prompt": "a"} if "chat" not in path else {"messages": MESSAGES}
    for value in (1.5, 64.0, "5", "", True, False, [], {}, *below):
        body = {**base, "stream": stream, "temperature": 0.1, name: value}
        reply = await client.post(path, json=body)
        assert reply.status_code == 400, value
        error = reply.json()["error"]
        assert (error["type"], error["param"]) == ("invalid_request_error", name)
    assert service.requests == []
    assert service.current.store.peek({}).inherited == ()


MESSAGES = [{"role": "user", "content": "hi"}]
