"""Constrained answers from the running server: always valid, streamed or not, cold or hot."""

import json
import re
from typing import Any

import httpx
import jsonschema_rs
import pytest

from tests.e2e.conftest import DEFAULTS
from tests.support.app import RunningApp
from tests.support.replies import streamed, whole

ASK = [{"role": "user", "content": "Describe a station for watching wild animals, in JSON."}]
STATION = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 24},
        "kind": {"enum": ["hut", "tower", "boat"]},
        "height": {"type": "number", "minimum": 0, "maximum": 100},
        "animals": {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {
                "type": "object",
                "properties": {
                    "species": {"type": "string", "maxLength": 16},
                    "count": {"type": "integer", "minimum": 0, "maximum": 50},
                },
                "required": ["species", "count"],
                "additionalProperties": False,
            },
        },
        "open": {"type": "boolean"},
    },
    "required": ["name", "kind", "height", "animals"],
    "additionalProperties": False,
}


def format_of(schema: dict[str, Any], *, strict: bool = True) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "strict": strict, "schema": schema},
    }


def body(seed: int, **fields: Any) -> dict[str, Any]:
    settings = {**DEFAULTS, "temperature": 1.0, "top_k": 40, "seed": seed, "max_tokens": 800}
    return {"messages": ASK, **settings, **fields}


def check_station(text: str) -> None:
    value = json.loads(text)
    jsonschema_rs.validate(STATION, value)


@pytest.mark.real
@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(6, 100))]
)
def test_every_reply_of_the_real_model_validates(fast_app: RunningApp, seed: int) -> None:
    with fast_app.client() as client:
        wanted = body(seed, response_format=format_of(STATION))
        reply = streamed(client, **wanted) if seed % 2 else whole(client, **wanted)
    assert reply.choices[0].finish_reason == "stop"
    check_station(reply.text)


def test_random_weights_cannot_leave_a_schema(client: httpx.Client) -> None:
    small = {
        "type": "object",
        "properties": {"a": {"enum": [1, 2]}, "b": {"type": "boolean"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    wanted = body(1, n=8, response_format=format_of(small), temperature=4.0)
    for choice in whole(client, **wanted).choices:
        assert choice.finish_reason == "stop"
        jsonschema_rs.validate(small, json.loads(choice.text))


def test_a_stream_gives_what_a_whole_reply_gives(client: httpx.Client) -> None:
    for seed in range(3):
        wanted = body(seed, structured_outputs={"regex": "[a-c]{3,9}-[0-9]{2}"})
        text = whole(client, **wanted).text
        assert re.fullmatch("[a-c]{3,9}-[0-9]{2}", text)
        assert streamed(client, **wanted).text == text


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
        ({"guided_choice": ["yes", "no"]}, "yes|no"),
        ({"guided_regex": "x{2,5}"}, "x{2,5}"),
        ({"structured_outputs": {"grammar": 'start: "a" ("b" | "c")'}}, "ab|ac"),
        ({"structured_outputs": {"grammar": 'root ::= "a" ("b" | "c")'}}, "ab|ac"),
        ({"structured_outputs": {"json": {"const": [1, "x"]}}}, r'\[\s*1\s*,\s*"x"\s*\]'),
        (
            {"response_format": {"type": "json_object", "schema": {"const": {"a": 1}}}},
            r'\{\s*"a"\s*:\s*1\s*\}',
        ),
    ],
)
def test_every_kind_is_enforced(client: httpx.Client, fields: dict[str, Any], pattern: str) -> None:
    for seed in range(3):
        assert re.fullmatch(pattern, whole(client, **body(seed, **fields)).text)


def test_completions_take_the_same_constraints(client: httpx.Client) -> None:
    wanted = {**body(1, structured_outputs={"choice": ["left", "right"]}), "prompt": "Turn "}
    del wanted["messages"]
    assert whole(client, **wanted).text in {"left", "right"}


@pytest.mark.real
def test_json_object_is_an_object(fast_app: RunningApp) -> None:
    with fast_app.client() as client:
        reply = whole(client, **body(5, response_format={"type": "json_object"}))
    if reply.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(reply.text), dict)
    assert reply.text.lstrip().startswith("{")


def test_greedy_and_penalised_rows_keep_to_the_grammar(client: httpx.Client) -> None:
    harsh = {"presence_penalty": 50.0, "frequency_penalty": 50.0, "repetition_penalty": 3.0}
    wanted = body(1, structured_outputs={"regex": "(ab){8}"}, **harsh)
    assert whole(client, **wanted).text == "ab" * 8
    assert whole(client, **{**wanted, "temperature": 0.0}).text == "ab" * 8


def test_what_cannot_be_enforced_is_refused_by_name(client: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)y"}}}
    reply = client.post(
        "/v1/chat/completions", json=body(1, stream=True, response_format=format_of(schema))
    )
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["param"] == "response_format.json_schema.schema"
    assert "pattern" in error["message"]
    assert "look-ahead" in error["message"]


def test_a_plan_refuses_what_the_call_refuses(client: httpx.Client) -> None:
    wanted = body(1, response_format=format_of({"not": {"type": "string"}}))
    call = client.post("/v1/chat/completions", json=wanted)
    plan = client.post("/v1/chat/completions/plan", json=wanted)
    assert (plan.status_code, plan.json()) == (call.status_code, call.json())
    assert plan.status_code == 400
