"""Random bodies, two thousand with --full: no 500, and settings that follow a model of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.e2e.bodies import STICKY, Sent, SettingsModel, as_text, sent_bodies
from tests.e2e.conftest import hot_folder, tiny_config
from tests.support.app import RunningApp, running_app

NUM_BODIES = 250
"""For each of the two models; four times as many with --full."""
IN_A_ROW = 10
SWITCHED = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content"
    " + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{{ reasoning_effort }}"
    "{{ '<think>\n\n</think>\n\n' if enable_thinking is false else '' }}{% endif %}"
)


@pytest.fixture(scope="module", params=["plain", "switched"])
def fuzzed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, store: Path
) -> Iterator[RunningApp]:
    """A model that does not reason, and one that is told whether to."""
    model = hot_folder(tmp_path_factory.mktemp("fuzz") / request.param)
    if request.param == "switched":
        path = model / "tokenizer_config.json"
        config = {**json.loads(path.read_text("utf-8")), "chat_template": SWITCHED}
        path.write_text(json.dumps(config), "utf-8")
    with running_app(tiny_config(model), store) as app:
        yield app
        app.wait_until_idle()


def in_force(app: RunningApp) -> dict[str, Any]:
    return {entry.field: entry.value for entry in app.model.store.entries()}


def was_admitted(sent: Sent, reply: httpx.Response) -> bool:
    """True for a request that went to the engine, however that ended."""
    if sent.path.endswith("/plan"):
        return False
    if reply.status_code == 200:
        return True
    message = reply.json()["error"]["message"]
    return reply.status_code == 400 and message.startswith("No token can follow")


def check(app: RunningApp, client: httpx.Client, model: SettingsModel, sent: Sent) -> bool:
    """Send a body and look at what came of it; whether it was admitted."""
    reply = client.post(sent.path, content=as_text(sent.body))
    assert reply.status_code in (200, 400, 404), reply.text
    if reply.status_code != 200:
        assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
    if sent.is_wrong:
        assert reply.status_code in (400, 404), reply.text
    admitted = was_admitted(sent, reply)
    if admitted:
        refuses = sent.body.get("adaptations") == "refuse"
        assert not (refuses and model.is_changed(sent.body))
        model.take(sent.body)
    assert in_force(app) == model.values
    if reply.status_code == 200 and sent.path.endswith("/plan"):
        planned = SettingsModel(model.defaults, model.switches)
        planned.values = dict(model.values)
        planned.take(sent.body)
        assert reply.json()["settings"] == planned.values
    return admitted


def run_bodies(app: RunningApp, num_bodies: int) -> None:
    switches = app.model.think not in ("none", "always")
    app.model.store.reset()
    model = SettingsModel(in_force(app), switches)
    assert set(model.values) == set(STICKY)
    found: list[bool] = []
    with app.client() as client:

        @settings(
            max_examples=num_bodies // IN_A_ROW,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(sent_bodies(), min_size=IN_A_ROW, max_size=IN_A_ROW))
        def run(bodies: list[Sent]) -> None:
            assert client.delete("/v1/settings").status_code == 200
            model.reset()
            assert in_force(app) == model.values
            found.extend(check(app, client, model, sent) for sent in bodies)

        run()
    assert len(found) >= num_bodies
    # Neither may be the exception, or the other half proves little.
    assert 0.3 < sum(found) / len(found) < 0.8


def test_no_body_finds_a_500_and_the_settings_follow_the_rules(fuzzed: RunningApp) -> None:
    run_bodies(fuzzed, NUM_BODIES)


@pytest.mark.full
def test_many_bodies_find_no_500(fuzzed: RunningApp) -> None:
    run_bodies(fuzzed, 4 * NUM_BODIES)
