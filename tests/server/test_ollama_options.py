"""Ollama's options: those that are read stick or hold as everywhere, the others are recorded."""

from typing import Any

import httpx
import pytest

from flm.server.schemas.ollama_options import OPTION_OF, UNREAD_OPTIONS, Options
from flm.sticky import SAMPLING_FIELDS
from tests.server.conftest import post, records
from tests.server.ollama import CHAT, GENERATE, PATHS, ask, body_of, error_of, records_of, reply_of
from tests.support.fake_service import VOCAB_SIZE, FakeService

pytestmark = pytest.mark.anyio

SENT: dict[str, Any] = {
    "temperature": 0.3,
    "top_k": 7,
    "top_p": 0.4,
    "min_p": 0.02,
    "repeat_penalty": 1.2,
    "presence_penalty": 0.6,
    "frequency_penalty": 0.7,
    "repeat_last_n": 5,
}


def in_force(service: FakeService) -> dict[str, Any]:
    sampling = service.requests[-1].settings.sampling
    return {OPTION_OF[name]: getattr(sampling, name) for name in SAMPLING_FIELDS}


@pytest.mark.parametrize("path", PATHS)
async def test_sampling_options_are_read_and_stick(
    client: httpx.AsyncClient, service: FakeService, path: str
) -> None:
    assert await records_of(client, path, options=SENT) == {}
    assert in_force(service) == SENT
    told = await records_of(client, path)
    assert in_force(service) == SENT
    assert set(told) == {f"options.{name}" for name in SENT}
    assert {entry["action"] for entry in told.values()} == {"defaulted"}
    # Other endpoints inherit them under their own names.
    assert set(records(await post(client))) == set(SAMPLING_FIELDS)


async def test_a_setting_of_another_endpoint_is_told_as_the_option(
    client: httpx.AsyncClient,
) -> None:
    await post(client, repetition_penalty=1.5)
    entry = (await records_of(client))["options.repeat_penalty"]
    assert (entry["action"], entry["applied"]) == ("defaulted", 1.5)


@pytest.mark.parametrize("name", ["temperature", "top_p", "repetition_penalty", "repeat_last_n"])
async def test_our_own_names_work_at_the_top_level(
    client: httpx.AsyncClient, service: FakeService, name: str
) -> None:
    assert await records_of(client, **{name: 1}) == {}
    assert getattr(service.requests[-1].settings.sampling, name) == 1


@pytest.mark.parametrize("ours", [name for name in OPTION_OF if name != "max_tokens"])
async def test_an_option_comes_before_our_field(
    client: httpx.AsyncClient, service: FakeService, ours: str
) -> None:
    option = OPTION_OF[ours]
    assert await records_of(client, **{ours: 1}, options={option: 1}) == {}
    entry = (await records_of(client, **{ours: 2}, options={option: 1}))[ours]
    assert (entry["action"], entry["asked"]) == ("dropped", 2)
    assert f"options.{option} (1" in entry["reason"]
    request = service.requests[-1]
    assert (request.seed if ours == "seed" else getattr(request.settings.sampling, ours)) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_p", 1.5),
        ("top_p", -1),
        ("min_p", 2),
        ("repeat_penalty", 0),
        ("presence_penalty", -2),
        ("frequency_penalty", -2),
    ],
)
async def test_a_value_out_of_range_is_ignored_and_recorded(
    client: httpx.AsyncClient, service: FakeService, name: str, value: float
) -> None:
    entry = (await records_of(client, options={name: value}))[f"options.{name}"]
    assert (entry["action"], entry["asked"]) == ("dropped", value)
    assert service.requests[-1].sent == {}


async def test_what_ollama_means_by_numbers_below_the_range(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    assert await records_of(client, options={"top_k": 0, "temperature": -1}) == {}
    sampling = service.requests[-1].settings.sampling
    assert (sampling.top_k, sampling.temperature) == (VOCAB_SIZE, 0.0)
    # Our own fields keep their own rule.
    assert set(await records_of(client, top_k=0, temperature=-1)) == {"top_k", "temperature"}


async def test_a_top_k_above_the_vocabulary_is_clamped_under_its_name(
    client: httpx.AsyncClient,
) -> None:
    entry = (await records_of(client, options={"top_k": 10**6}))["options.top_k"]
    assert (entry["action"], entry["applied"]) == ("clamped", VOCAB_SIZE)


async def test_seeds(client: httpx.AsyncClient, service: FakeService) -> None:
    for fields, seed in (
        ({"options": {"seed": 5}}, 5),
        ({"options": {"seed": -1}}, None),
        ({"options": {"seed": 0}}, 0),
        ({"seed": -1}, -1),
        ({"seed": 3, "options": {}}, 3),
    ):
        assert await records_of(client, **fields) == {}
        assert service.requests[-1].seed == seed
    assert set(await records_of(client, seed=3, options={"seed": -1})) == {"seed"}
    assert service.requests[-1].seed is None


async def test_lengths(client: httpx.AsyncClient, service: FakeService) -> None:
    for fields, length in (
        ({"options": {"num_predict": 3}}, 3),
        ({"options": {"num_predict": -1}}, None),
        ({"options": {"num_predict": -2}}, None),
        ({"options": {"num_predict": 0}}, None),
        ({"max_tokens": 2}, 2),
        ({"max_tokens": 3, "options": {"num_predict": 3}}, 3),
    ):
        assert await records_of(client, **fields) == {}
        assert service.requests[-1].max_tokens == length
    for option, length in ((2, 2), (-1, None)):
        told = await records_of(client, max_tokens=4, options={"num_predict": option})
        assert told["max_tokens"]["action"] == "dropped"
        assert service.requests[-1].max_tokens == length
    entry = (await records_of(client, options={"num_predict": 10**6}))["options.num_predict"]
    assert entry["action"] == "clamped"


async def test_stop_strings(client: httpx.AsyncClient, service: FakeService) -> None:
    for stop, found in (("a", ("a",)), (["a", "", "b"], ("a", "b")), ([], ()), ("", ())):
        assert await records_of(client, options={"stop": stop}) == {}
        assert service.requests[-1].stop == found
    assert (await error_of(client, options={"stop": ["x"] * 17}))["param"] == "options.stop"


async def test_the_context_is_that_of_the_server(client: httpx.AsyncClient) -> None:
    assert await records_of(client, options={"num_ctx": 512}) == {}
    for asked in (2048, 256, 0):
        entry = (await records_of(client, options={"num_ctx": asked}))["options.num_ctx"]
        assert (entry["action"], entry["asked"]) == ("dropped", asked)
        assert "512" in entry["reason"]
        assert "--ctx-len" in entry["reason"]


MET: dict[str, Any] = {
    "typical_p": 1.0,
    "tfs_z": 1,
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "penalize_newline": True,
    "num_keep": 4,
    "num_gpu": -1,
    "main_gpu": 0,
    "num_thread": 0,
    "numa": False,
    "low_vram": False,
    "use_mlock": False,
    "logits_all": False,
    "vocab_only": False,
    "embedding_only": False,
}
UNMET: dict[str, Any] = {
    "typical_p": 0.7,
    "tfs_z": 0.5,
    "mirostat": 2,
    "penalize_newline": False,
    "num_batch": 512,
    "num_gpu": 33,
    "main_gpu": 1,
    "num_thread": 8,
    "f16_kv": True,
    "numa": True,
    "low_vram": True,
    "use_mmap": True,
    "use_mlock": True,
    "logits_all": True,
    "vocab_only": True,
    "embedding_only": True,
}


def test_every_unread_option_is_tried() -> None:
    assert set(MET) | set(UNMET) == set(UNREAD_OPTIONS)
    assert not set(UNREAD_OPTIONS) & set(Options.model_fields)


async def test_options_that_ask_for_what_is_done_anyway(client: httpx.AsyncClient) -> None:
    assert await records_of(client, options=MET) == {}


async def test_options_that_have_no_effect_are_recorded(client: httpx.AsyncClient) -> None:
    told = await records_of(client, options={**UNMET, "no_such": 1, "nothing": None})
    assert set(told) == {f"options.{name}" for name in (*UNMET, "no_such")}
    for entry in told.values():
        assert entry["action"] == "dropped"
        assert entry["reason"]


async def test_options_at_the_top_level_are_told_where_they_belong(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    for name in ("num_predict", "num_ctx", "stop", "repeat_penalty", "mirostat"):
        entry = (await records_of(client, **{name: 1}))[name]
        assert entry["action"] == "dropped"
        assert f"options.{name}" in entry["reason"]
    assert service.requests[-1].stop == ()


@pytest.mark.parametrize("path", PATHS)
async def test_refuse_names_the_option(
    client: httpx.AsyncClient, service: FakeService, path: str
) -> None:
    error = await error_of(client, path, options={"mirostat": 2}, adaptations="refuse")
    assert (error["code"], error["param"]) == ("refused", "options.mirostat")
    assert service.requests == []
    silent = await reply_of(client, path, options={"mirostat": 2}, adaptations="silent")
    assert "adaptations" not in silent


WRONG: dict[str, list[Any]] = {
    "temperature": ["1", True, [], {}],
    "top_k": [1.5, "1", True],
    "top_p": ["0.5", True],
    "min_p": [{}],
    "repeat_penalty": ["1"],
    "presence_penalty": [[1]],
    "frequency_penalty": [True],
    "repeat_last_n": [1.5, -2, "5"],
    "seed": [1.5, 2**63, "7", True],
    "stop": [1, [1], {}],
    "num_predict": [1.5, "5"],
    "num_ctx": ["2048", 1.5],
}


def test_a_wrong_type_of_every_option_is_tried() -> None:
    assert set(WRONG) == set(Options.model_fields)


@pytest.mark.parametrize("path", [CHAT, GENERATE, "/api/chat/plan", "/api/generate/plan"])
@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_type_is_an_error_naming_the_option(
    client: httpx.AsyncClient, service: FakeService, path: str, name: str
) -> None:
    for value in WRONG[name]:
        reply = await client.post(path, json=body_of(path, options={name: value}))
        assert reply.status_code == 400, value
        assert reply.json()["param"].startswith(f"options.{name}"), value
    assert service.requests == []
    assert (await ask(client, options=[])).json()["param"] == "options"


async def test_a_misspelt_option_is_recognised(client: httpx.AsyncClient) -> None:
    told = await records_of(client, options={"temprature": 0, "NumPredict": 1, "mood": 1})
    assert "Did you mean options.temperature?" in told["options.temprature"]["reason"]
    assert "Did you mean options.num_predict?" in told["options.NumPredict"]["reason"]
    assert "Did you mean" not in told["options.mood"]["reason"]
