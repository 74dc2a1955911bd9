"""Settings stick across clients and endpoints; plans, refusals and full queues leave no trace."""

import gc
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from flm.service import LoadedModel
from tests.e2e.conftest import DEFAULTS, tiny_config
from tests.e2e.test_crowd import FOREVER, leaver
from tests.support.app import RunningApp, running_app, wait_until
from tests.support.replies import CHAT, COMPLETIONS, streamed, whole

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


def settings(client: httpx.Client) -> dict[str, Any]:
    reply = client.get("/v1/settings")
    assert reply.status_code == 200
    return {entry["field"]: entry for entry in reply.json()["settings"]}


def values(client: httpx.Client) -> dict[str, Any]:
    return {name: entry["value"] for name, entry in settings(client).items()}


FRESH = {**DEFAULTS, "think": None, "reasoning_effort": None}


def test_a_fresh_server_has_the_models_own_defaults(client: httpx.Client) -> None:
    assert values(client) == FRESH
    for entry in settings(client).values():
        assert (entry["default"], entry["set_by"], entry["set_at"]) == (entry["value"], None, None)


def test_a_setting_sticks_across_clients_endpoints_and_streams(
    app: RunningApp, client: httpx.Client
) -> None:
    first = client.post(CHAT, json={"messages": HELLO, "max_tokens": 1, "temperature": 0})
    greedy = whole(client, prompt="hi", max_tokens=12)
    assert greedy.text == whole(client, prompt="hi", max_tokens=12, temperature=0).text
    with app.client() as other:
        for send in (whole, streamed):
            reply = send(other, prompt="hi", max_tokens=12)
            assert reply.text == greedy.text
            (entry,) = reply.adaptations
            assert (entry["field"], entry["action"]) == ("temperature", "defaulted")
            assert entry["applied"] == 0
            assert "asked" not in entry
        last = settings(other)["temperature"]["set_by"]
        assert last in entry["reason"]
        assert settings(other)["temperature"]["set_at"] is not None
    assert first.json()["id"] == first.headers["x-request-id"]


def test_the_record_names_the_request_that_set_it(client: httpx.Client) -> None:
    setter = client.post(COMPLETIONS, json={"prompt": "hi", "max_tokens": 1, "top_k": 7})
    entry = settings(client)["top_k"]
    assert (entry["value"], entry["set_by"]) == (7, setter.json()["id"])
    (record,) = whole(client, prompt="hi", max_tokens=1).adaptations
    assert setter.json()["id"] in record["reason"]
    assert whole(client, prompt="hi", max_tokens=1, adaptations="silent").adaptations == []
    # Inheriting is no change of what was asked, so nothing is refused.
    assert whole(client, prompt="hi", max_tokens=1, adaptations="refuse").adaptations == [record]


def test_only_the_sticky_fields_stick(client: httpx.Client) -> None:
    once = {
        "seed": 1,
        "n": 2,
        "max_tokens": 3,
        "min_tokens": 1,
        "stop": "x",
        "stop_token_ids": [400],
        "ignore_eos": True,
        "logit_bias": {"5": 1},
        "logprobs": 1,
        "echo": True,
        "cache_prompt": False,
        "return_token_ids": True,
        "adaptations": "silent",
    }
    whole(client, prompt="hi", **once)
    assert values(client) == FRESH
    after = client.post(COMPLETIONS, json={"prompt": "hi", "max_tokens": 5, "foo": 1}).json()
    assert len(after["choices"]) == 1
    assert after["choices"][0]["logprobs"] is None
    assert "token_ids" not in after["choices"][0]
    assert [entry["field"] for entry in after["adaptations"]] == ["foo"]


def test_delete_restores_the_defaults(client: httpx.Client) -> None:
    changed = {"temperature": 0.5, "top_k": 3, "top_p": 0.5, "min_p": 0.5, "repeat_last_n": -1}
    whole(client, prompt="hi", max_tokens=1, **changed)
    assert values(client) == {**FRESH, **changed}
    reply = client.delete("/v1/settings")
    assert reply.status_code == 200
    assert all(entry["set_by"] is None for entry in reply.json()["settings"])
    assert values(client) == FRESH
    assert whole(client, prompt="hi", max_tokens=1).adaptations == []


def test_a_reload_restores_the_defaults_and_empties_the_cache(
    app: RunningApp, client: httpx.Client
) -> None:
    prompt = list(range(3, 103))
    body = {"prompt": prompt, "max_tokens": 4, "seed": 1}
    told = whole(client, **body, temperature=0.5, top_k=3)
    assert whole(client, **body).choices == told.choices
    assert whole(client, **body).cached_tokens > 0
    before = app.model
    app.run(app.service.reload())
    assert app.model is not before
    assert not before.engine.stats().alive
    assert values(client) == FRESH
    again = whole(client, **body)
    assert (again.cached_tokens, again.adaptations) == (0, [])
    assert whole(client, **body, temperature=0.5, top_k=3).choices == told.choices


def test_a_reload_frees_the_old_model_before_it_loads(
    app: RunningApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two models need not fit into memory at once."""
    library = app.service._library
    load = library.load
    old = weakref.ref(app.model.engine._engine._runner._model)  # type: ignore[attr-defined]
    are_free: list[bool] = []

    def look_and_load(model_id: str) -> LoadedModel:
        gc.collect()
        are_free.append(old() is None)
        return load(model_id)

    monkeypatch.setattr(library, "load", look_and_load)
    app.run(app.service.reload())
    assert are_free == [True]


def test_a_reload_waits_for_running_requests(app: RunningApp, client: httpx.Client) -> None:
    old = app.service.current
    body = {**leaver(1, 200), "stream": True}
    with client.stream("POST", COMPLETIONS, json=body) as reply:
        lines = reply.iter_lines()
        next(lines)
        app.loop.call_soon_threadsafe(lambda: app.loop.create_task(app.service.reload()))
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    wait_until(lambda: app.service.current not in (None, old))


# --- plans -------------------------------------------------------------------------------------


def test_a_plan_changes_nothing(app: RunningApp, client: httpx.Client) -> None:
    prompt = list(range(203, 303))
    body = {"prompt": prompt, "max_tokens": 10, "temperature": 3.5, "top_k": 9999, "foo": 1}
    stats = app.model.engine.stats()
    for _ in range(3):
        plan = client.post(f"{COMPLETIONS}/plan", json=body).json()
        assert plan["cached_tokens"] == 0
    assert app.model.engine.stats() == stats
    assert values(client) == FRESH
    assert plan["object"] == "plan"
    assert plan["settings"] == {**FRESH, "temperature": 3.5, "top_k": 512}
    assert (plan["prompt_tokens"], plan["prefill_chunks"]) == (100, [100])
    assert (plan["max_new_tokens"], plan["fits"]) == (10, True)
    actions = [(entry["field"], entry["action"]) for entry in plan["adaptations"]]
    assert actions == [("top_k", "clamped"), ("foo", "dropped")]
    done = client.post(COMPLETIONS, json={**body, "seed": 1}).json()
    assert done["adaptations"] == plan["adaptations"]
    assert done["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    planned = client.post(f"{COMPLETIONS}/plan", json=body).json()
    redone = client.post(COMPLETIONS, json={**body, "seed": 1}).json()
    assert planned["cached_tokens"] == 96
    assert redone["usage"]["prompt_tokens_details"]["cached_tokens"] == planned["cached_tokens"]


def test_a_plan_shows_the_prompt(client: httpx.Client) -> None:
    plan = client.post(f"{CHAT}/plan", json={"messages": HELLO}).json()
    assert plan["prompt"] == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    whole(client, messages=HELLO, max_tokens=1, temperature=0.5)
    plan = client.post(f"{CHAT}/plan", json={"messages": HELLO}).json()
    assert plan["settings"]["temperature"] == 0.5
    assert [entry["action"] for entry in plan["adaptations"]] == ["defaulted"]


def test_plans_do_not_move_the_randomness(tiny_model: Path, store: Path, monkeypatch: Any) -> None:
    """Unseeded requests draw from one stream; with its start fixed, plans must not advance it."""
    from flm.engine import engine
    from flm.sampling.draw import ModelRandom

    monkeypatch.setattr(engine, "ModelRandom", lambda seed: ModelRandom(99))
    texts = []
    for num_plans in (0, 5):
        with running_app(tiny_config(tiny_model), store) as app, app.client() as client:
            for _ in range(num_plans):
                client.post(f"{CHAT}/plan", json={"messages": HELLO})
                # Neither does a seeded request, nor a greedy one.
                whole(client, prompt="x", seed=3, max_tokens=2, cache_prompt=False)
            texts.append([whole(client, messages=HELLO, max_tokens=12).text for _ in range(3)])
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 3


# --- refusals ----------------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"temperature": -1}, "temperature"),
    ({"top_k": 600}, "top_k"),
    ({"foo": 1}, "foo"),
    ({"foo": 1, "top_p": 2}, "top_p"),
    ({"store": True}, "store"),
    ({"think": True}, "think"),
    ({"max_tokens": 10**6}, "max_tokens"),
    ({"options": {"repeat_last_n": 3}}, "options"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
def test_refuse_generates_and_writes_nothing(
    app: RunningApp, client: httpx.Client, fields: dict[str, Any], param: str
) -> None:
    stats = app.model.engine.stats()
    body = {"messages": HELLO, "adaptations": "refuse", "min_p": 0.25, **fields}
    for path in (CHAT, f"{CHAT}/plan"):
        for stream in (False, True):
            reply = client.post(path, json={**body, "stream": stream})
            assert reply.status_code == 400
            error = reply.json()["error"]
            assert error.pop("message")
            assert error == {"type": "invalid_request_error", "code": "refused", "param": param}
    assert values(client) == FRESH
    assert app.model.engine.stats() == stats


# --- a full queue ------------------------------------------------------------------------------


@pytest.fixture
def busy(tiny_model: Path, store: Path) -> Iterator[tuple[RunningApp, httpx.Client]]:
    """One request runs, one waits, and that is all there may be."""
    config = tiny_config(tiny_model, parallel=1, q_len=1)
    with running_app(config, store) as app, app.client() as one, app.client() as two:
        engine = app.model.engine
        body = {**leaver(1, FOREVER), "stream": True}
        with one.stream("POST", COMPLETIONS, json=body):
            wait_until(lambda: engine.stats().num_running == 1)
            with two.stream("POST", COMPLETIONS, json=body):
                wait_until(lambda: engine.stats().num_waiting == 1)
                with app.client() as client:
                    yield app, client


def test_a_full_queue_is_a_503_that_writes_nothing(busy: tuple[RunningApp, httpx.Client]) -> None:
    _, client = busy
    before = settings(client)
    for stream in (False, True):
        body = {"messages": HELLO, "temperature": 0.125, "stream": stream}
        reply = client.post(CHAT, json=body)
        assert reply.status_code == 503
        assert int(reply.headers["retry-after"]) > 0
        error = reply.json()["error"]
        assert "--q-len" in error.pop("message")
        assert error == {"type": "server_error", "code": "queue_full", "param": None}
    assert settings(client) == before
    # What is wrong in itself stays wrong, and a plan needs no room.
    assert client.post(CHAT, json={"messages": []}).status_code == 400
    assert client.post(f"{CHAT}/plan", json={"messages": HELLO}).status_code == 200
    assert client.post(CHAT, json={"messages": HELLO, "n": 3}).status_code == 400
    assert client.get("/health").status_code == 200


def test_once_there_is_room_again_it_works(tiny_model: Path, store: Path) -> None:
    config = tiny_config(tiny_model, parallel=1, q_len=1)
    with running_app(config, store) as app, app.client() as one, app.client() as client:
        with one.stream("POST", COMPLETIONS, json={**leaver(1, FOREVER), "stream": True}):
            wait_until(lambda: app.model.engine.stats().num_running == 1)
        for _ in range(50):
            reply = client.post(COMPLETIONS, json={"prompt": "hi", "max_tokens": 1, "n": 2})
            if reply.status_code == 200:
                break
            time.sleep(0.05)
        assert reply.status_code == 200
        app.wait_until_idle()


def test_an_ignored_value_has_one_record(client: httpx.Client) -> None:
    whole(client, prompt="a", max_tokens=1, top_p=0.5)
    reply = whole(client, prompt="a", max_tokens=1, top_p=3)
    assert [(entry["field"], entry["action"]) for entry in reply.adaptations] == [
        ("top_p", "dropped")
    ]


@pytest.mark.parametrize("fields", [{"n": 128}, {"n": 100, "prompt": ["a", "b"]}])
def test_a_plan_refuses_as_many_choices_as_the_call(
    client: httpx.Client, fields: dict[str, Any]
) -> None:
    body = {"prompt": "a", "max_tokens": 1, **fields}
    call = client.post(COMPLETIONS, json=body)
    plan = client.post(f"{COMPLETIONS}/plan", json=body)
    assert (plan.status_code, plan.json()) == (call.status_code, call.json())
    assert call.status_code == 400
    assert call.json()["error"]["param"] == "n"


def test_more_tokens_than_there_is_room_for_are_told(client: httpx.Client) -> None:
    body = {"prompt": "a", "min_tokens": 100_000, "max_tokens": 200_000}
    plan = client.post(f"{COMPLETIONS}/plan", json=body).json()
    actions = {entry["field"]: entry["action"] for entry in plan["adaptations"]}
    assert actions == {"max_tokens": "clamped", "min_tokens": "clamped"}
