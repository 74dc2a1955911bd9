"""Two installed models: whoever is asked for answers, whatever is loaded."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from flm.config import ServeConfig
from tests.e2e.conftest import hot_folder, tiny_config
from tests.e2e.test_crowd import leaver
from tests.support.app import RunningApp, install, running_app
from tests.support.replies import CHAT, COMPLETIONS, Reply, astreamed, awhole, streamed, whole

ONE, TWO = "test/one", "test/two"
BODY: dict[str, Any] = {"prompt": "Once upon a time", "seed": 3, "max_tokens": 10}


@pytest.fixture(scope="module")
def two_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two models of different weights."""
    store = tmp_path_factory.mktemp("two")
    for seed, name in enumerate((ONE, TWO)):
        install(store, name, hot_folder(store / "new", seed=seed))
    return store


@pytest.fixture
def app(two_models: Path) -> Iterator[RunningApp]:
    config = ServeConfig(model=ONE, dtype="float32", threads=1, served_name=("gpt-4o", "my/model"))
    with running_app(config, two_models) as app:
        yield app
        app.wait_until_idle()


@pytest.fixture(scope="module")
def told(two_models: Path) -> dict[str, Reply]:
    """What each model says when it is the only one."""
    replies = {}
    for name in (ONE, TWO):
        config = ServeConfig(model=name, dtype="float32", threads=1)
        with running_app(config, two_models) as app, app.client() as client:
            replies[name] = whole(client, **BODY)
    assert replies[ONE].text != replies[TWO].text
    return replies


def test_a_named_model_is_swapped_in(client: httpx.Client, told: dict[str, Reply]) -> None:
    for name in (ONE, TWO, TWO, ONE):
        assert whole(client, **BODY, model=name).choices == told[name].choices
        assert streamed(client, **BODY, model=name).choices == told[name].choices
        # Absent: the loaded model.
        assert whole(client, **BODY).choices == told[name].choices
        reply = client.post(COMPLETIONS, json={**BODY, "model": name})
        assert reply.json()["model"] == name
        listed = {entry["id"]: entry for entry in client.get("/v1/models").json()["data"]}
        assert listed[name]["loaded"]
        assert [listed[other]["loaded"] for other in (ONE, TWO)] == [name == ONE, name == TWO]


def test_requests_to_both_at_once(app: RunningApp, told: dict[str, Reply]) -> None:
    names = [ONE, TWO, ONE, ONE, TWO, TWO, ONE, TWO, "gpt-4o", TWO, ONE, TWO]

    async def ask_all() -> list[Reply]:
        async with app.async_client() as client:
            sends = (awhole, astreamed)
            return await asyncio.gather(
                *(
                    sends[number % 2](client, **BODY, model=name)
                    for number, name in enumerate(names)
                )
            )

    for name, reply in zip(names, asyncio.run(ask_all()), strict=True):
        if name != "gpt-4o":
            assert reply.choices == told[name].choices


def test_a_swap_restores_the_settings(client: httpx.Client) -> None:
    whole(client, **BODY, temperature=0.5)
    assert setting(client, "temperature") == 0.5
    whole(client, **BODY, model=TWO, top_k=3)
    assert (setting(client, "temperature"), setting(client, "top_k")) == (4.0, 3)
    # Those of a model that is not loaded are its defaults; looking does not load it.
    assert setting(client, "top_k", ONE) == 100
    assert setting(client, "top_k", TWO) == 3
    assert setting(client, "top_k") == 3
    whole(client, **BODY, model=ONE)
    assert (setting(client, "temperature"), setting(client, "top_k")) == (4.0, 100)


def setting(client: httpx.Client, field: str, model: str | None = None) -> Any:
    params = {} if model is None else {"model": model}
    entries = client.get("/v1/settings", params=params).json()["settings"]
    return next(entry["value"] for entry in entries if entry["field"] == field)


def test_a_swap_waits_for_running_requests(app: RunningApp, told: dict[str, Reply]) -> None:
    with app.client() as one, app.client() as two:
        body = {**leaver(1, 150), "stream": True, "model": ONE}
        with one.stream("POST", COMPLETIONS, json=body) as reply:
            lines = reply.iter_lines()
            next(lines)
            assert whole(two, **BODY, model=TWO).choices == told[TWO].choices
            assert [line for line in lines if line][-1] == "data: [DONE]"


def test_a_client_that_leaves_a_waiting_swap_is_forgotten(
    app: RunningApp, told: dict[str, Reply]
) -> None:
    with app.client() as one:
        body = {**leaver(1, 300), "stream": True, "model": ONE}
        with one.stream("POST", COMPLETIONS, json=body) as reply:
            lines = reply.iter_lines()
            next(lines)

            async def give_up() -> None:
                async with app.async_client() as client:
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(awhole(client, **BODY, model=TWO), 0.1)

            asyncio.run(give_up())
            assert [line for line in lines if line][-1] == "data: [DONE]"
        assert whole(one, **BODY).choices == told[ONE].choices
    assert app.model.model_id == ONE


def test_an_unknown_model_is_a_404_that_names_what_there_is(client: httpx.Client) -> None:
    for path, body in (
        (CHAT, {"messages": [{"role": "user", "content": "x"}]}),
        (COMPLETIONS, BODY),
    ):
        for name in ("test/three", "one", "smollm2:135m"):
            for suffix in ("", "/plan"):
                reply = client.post(path + suffix, json={**body, "model": name, "stream": True})
                assert reply.status_code == 404
                error = reply.json()["error"]
                assert (error["code"], error["param"]) == ("model_not_found", "model")
                assert ONE in error["message"]
                assert TWO in error["message"]


def test_served_names_are_the_loaded_model(client: httpx.Client, told: dict[str, Reply]) -> None:
    ids = [entry["id"] for entry in client.get("/v1/models").json()["data"]]
    assert ids == [ONE, "gpt-4o", "my/model", TWO]
    for name in ("gpt-4o", "my/model"):
        reply = client.post(COMPLETIONS, json={**BODY, "model": name}).json()
        assert reply["model"] == name
        assert reply["choices"][0]["text"] == told[ONE].text
        assert client.get(f"/v1/models/{name}").json()["id"] == name
    assert client.get("/v1/models/gpt-4").status_code == 404


def test_any_name_where_a_star_is_served(tiny_model: Path, store: Path) -> None:
    config = tiny_config(tiny_model, served_name=("*",))
    with running_app(config, store) as app, app.client() as client:
        told = whole(client, **BODY)
        assert whole(client, **BODY, model="anything at all").choices == told.choices
        assert client.get("/v1/models/anything at all").json()["id"] == app.model.model_id


def test_a_damaged_model_is_an_error_for_who_asked_and_for_nobody_else(
    two_models: Path, tmp_path: Path, told: dict[str, Reply]
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    install(store, ONE, hot_folder(store / "new", seed=0))
    bad = install(store, TWO, hot_folder(store / "new", seed=1))
    with (
        running_app(ServeConfig(model=ONE, dtype="float32", threads=1), store) as app,
        app.client() as client,
    ):
        weights = bad / "model.safetensors"
        content = weights.read_bytes()
        # The size stays, so that only loading it can tell.
        weights.write_bytes(b"\xff" * 64 + content[64:])
        reply = client.post(COMPLETIONS, json={**BODY, "model": TWO})
        assert reply.status_code >= 400
        assert reply.json()["error"]["message"]
        assert whole(client, **BODY).choices == told[ONE].choices
        assert client.get("/health").status_code == 200
        weights.write_bytes(content)
        assert whole(client, **BODY, model=TWO).choices == told[TWO].choices
