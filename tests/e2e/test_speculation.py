"""A server that guesses tokens ahead, beside one that does not: the same replies over HTTP."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import tiny_config
from tests.support.app import RunningApp, running_app
from tests.support.replies import CHAT

SAID = "one two three four one two three four one two"
ASK = {"messages": [{"role": "user", "content": SAID}]}
WARM: dict[str, Any] = {"temperature": 0.4, "top_k": 20, "top_p": 1.0, "min_p": 0.0}
LIST = {"type": "array", "items": {"enum": ["yes", "no"]}, "minItems": 8, "maxItems": 8}
SCHEMA = {
    "type": "object",
    "properties": {"list": LIST},
    "required": ["list"],
    "additionalProperties": False,
}
BODIES: dict[str, dict[str, Any]] = {
    "greedy": {**ASK, "temperature": 0, "max_tokens": 60, "logprobs": True, "top_logprobs": 3},
    "seeded": {**ASK, **WARM, "seed": 4, "max_tokens": 60, "logprobs": True},
    "choices": {**ASK, **WARM, "seed": 4, "max_tokens": 40, "n": 3},
    "penalties": {
        **ASK,
        **WARM,
        "seed": 1,
        "max_tokens": 40,
        "frequency_penalty": 0.2,
        "repetition_penalty": 1.1,
        "repeat_last_n": 7,
    },
    "bias": {**ASK, "temperature": 0, "max_tokens": 30, "logit_bias": {"70": 4, "71": -100}},
    "stop strings": {**ASK, **WARM, "seed": 9, "max_tokens": 60, "stop": ["e", "a"]},
    "stop ids": {**ASK, **WARM, "seed": 9, "max_tokens": 60, "stop_token_ids": list(range(80, 99))},
    "min_tokens": {**ASK, "temperature": 0, "max_tokens": 30, "min_tokens": 25},
    "schema": {
        **ASK,
        **WARM,
        "seed": 2,
        "max_tokens": 100,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "a", "strict": True, "schema": SCHEMA},
        },
    },
}


@pytest.fixture(scope="module", params=["float32", "native"])
def pair(
    request: pytest.FixtureRequest, tiny_model: Path, store: Path
) -> Iterator[tuple[RunningApp, RunningApp]]:
    """One that guesses and one that does not, in the same mode."""
    config = tiny_config(tiny_model)
    if request.param == "native":
        config = replace(config, dtype="auto", kernels="native")
    with (
        running_app(replace(config, speculate="ngram"), store) as guessing,
        running_app(config, store) as plain,
    ):
        assert guessing.model.speculates
        assert not plain.model.speculates
        yield guessing, plain


def asked(app: RunningApp, body: dict[str, Any]) -> dict[str, Any]:
    with app.client() as client:
        reply = client.post(CHAT, json=body | {"return_token_ids": True})
    assert reply.status_code == 200, reply.text
    app.wait_until_idle()
    found: dict[str, Any] = reply.json()
    return found


def counts(usage: dict[str, Any]) -> dict[str, Any]:
    details = usage["prompt_tokens_details"], usage["completion_tokens_details"]["reasoning_tokens"]
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    return {name: usage[name] for name in names} | {"details": details}


def test_every_reply_is_the_same(pair: tuple[RunningApp, RunningApp]) -> None:
    guessing, plain = pair
    num_accepted = 0
    for name, body in BODIES.items():
        found, expected = asked(guessing, body), asked(plain, body)
        assert found["choices"] == expected["choices"], name
        assert counts(found["usage"]) == counts(expected["usage"]), name
        details = found["usage"]["completion_tokens_details"]
        num_accepted += details["accepted_prediction_tokens"]
        assert details["rejected_prediction_tokens"] >= 0
        assert details["accepted_prediction_tokens"] <= found["usage"]["completion_tokens"]
        assert set(expected["usage"]["completion_tokens_details"]) == {"reasoning_tokens"}
    assert num_accepted > 50


def test_many_at_once_say_what_each_says_alone(pair: tuple[RunningApp, RunningApp]) -> None:
    guessing, plain = pair
    expected = {name: asked(plain, body)["choices"] for name, body in BODIES.items()}
    found: dict[str, Any] = {}

    def ask(name: str) -> None:
        with guessing.client() as client:
            reply = client.post(CHAT, json=BODIES[name] | {"return_token_ids": True})
        found[name] = reply.json()["choices"]

    threads = [threading.Thread(target=ask, args=(name,)) for name in BODIES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert found == expected
    guessing.wait_until_idle()


def test_a_stream_sends_each_token_in_its_order(pair: tuple[RunningApp, RunningApp]) -> None:
    lines = []
    for app in pair:
        with app.client() as client:
            body = BODIES["greedy"] | {"stream": True, "timings_per_token": True}
            reply = client.post(CHAT, json=body)
        app.wait_until_idle()
        lines.append(reply.text.split("\n\n"))
    assert len(lines[0]) == len(lines[1])
    assert any('"draft_n":' in line for line in lines[0])
    assert not any('"draft_n":' in line for line in lines[1])


def test_a_client_that_leaves_in_the_middle(pair: tuple[RunningApp, RunningApp]) -> None:
    guessing, _ = pair
    body = ASK | {"temperature": 0, "stream": True, "ignore_eos": True, "max_tokens": 1500}
    with guessing.client() as client, client.stream("POST", CHAT, json=body) as reply:
        for _ in zip(range(20), reply.iter_lines(), strict=False):
            pass
    guessing.wait_until_idle()
