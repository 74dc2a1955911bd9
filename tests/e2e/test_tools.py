"""Forced and strict tool calls from the running server: always valid, streamed or not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from flm.config import ServeConfig
from tests.e2e.conftest import DEFAULTS
from tests.support.app import RunningApp, running_app
from tests.support.replies import streamed, whole

ASK = [{"role": "user", "content": "I am in Lyon with two friends. Plan an evening for us."}]


def tool(name: str, about: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    function = {"name": name, "description": about, "parameters": parameters}
    return {"type": "function", "function": function}


TEXT = {"type": "string"}
TOOLS = [
    tool(
        "get_weather",
        "The weather of a place",
        {"city": TEXT, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        ["city", "unit"],
    ),
    tool(
        "book_table",
        "Book a table in a restaurant",
        {
            "restaurant": TEXT,
            "guests": {"type": "integer", "minimum": 1, "maximum": 12},
            "smoking": {"type": "boolean"},
        },
        ["restaurant", "guests"],
    ),
    tool(
        "send_mail",
        "Send a mail to people",
        {"to": {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 3}, "subject": TEXT},
        ["to", "subject"],
    ),
    tool(
        "find_route",
        "Find the way from a place to another",
        {
            "start": {"type": "object", "properties": {"street": TEXT, "city": TEXT},
                      "required": ["street", "city"]},
            "end": TEXT,
            "by": {"enum": ["foot", "car", "train"]},
        },
        ["start", "end"],
    ),
]  # fmt: skip
SCHEMAS = {item["function"]["name"]: item["function"]["parameters"] for item in TOOLS}


@pytest.fixture(scope="module")
def fast_app_of_module(smollm2_gguf: Path, store: Path) -> Iterator[RunningApp]:
    # A grammar holds in every mode, and the exact one takes twice as long for a token.
    with running_app(ServeConfig(model=str(smollm2_gguf), ctx_len=2048), store) as app:
        yield app


@pytest.fixture
def fast_app(fast_app_of_module: RunningApp) -> Iterator[RunningApp]:
    fast_app_of_module.model.store.reset()
    yield fast_app_of_module
    fast_app_of_module.wait_until_idle()


def body(seed: int, **fields: Any) -> dict[str, Any]:
    settings = {**DEFAULTS, "temperature": 1.0, "top_k": 40, "seed": seed, "max_tokens": 512}
    return {"messages": ASK, "tools": TOOLS, **settings, **fields}


def check_calls(choice: Any) -> None:
    assert choice.finish_reason == "tool_calls"
    assert choice.calls
    for call in choice.calls:
        value = json.loads(call.arguments)
        assert isinstance(value, dict)
        jsonschema_rs.validate(SCHEMAS[call.name], value)


@pytest.mark.real
@pytest.mark.parametrize(
    "seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(10, 100))]
)
def test_every_forced_call_of_the_real_model_validates(fast_app: RunningApp, seed: int) -> None:
    with fast_app.client() as client:
        wanted = body(seed, tool_choice="required")
        reply = streamed(client, **wanted) if seed % 2 else whole(client, **wanted)
    (choice,) = reply.choices
    check_calls(choice)
    assert choice.text == ""
