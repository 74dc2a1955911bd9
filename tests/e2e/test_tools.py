"""Forced and strict tool calls from the running server: always valid, streamed or not."""

import json
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest

from flm.config import ToolDialect
from tests.e2e.conftest import hot_folder, tiny_config
from tests.support.app import RunningApp, running_app
from tests.support.replies import streamed, whole
from tests.text.templates import QWEN_LIKE

ASK = [{"role": "user", "content": "I am in Lyon with two friends. Plan an evening for us."}]


def tool(name: str, about: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    function = {"name": name, "description": about, "parameters": parameters}
    return {"type": "function", "function": function}


TEXT = {"type": "string", "maxLength": 60}
"""Without a maximum, so small a model repeats itself in three of a hundred calls to the end of its
tokens."""
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


def body(seed: int, **fields: Any) -> dict[str, Any]:
    settings = {"temperature": 1.0, "seed": seed, "max_tokens": 512}
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
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(6, 100))]
)
def test_every_forced_call_of_the_real_model_validates(fast_app: RunningApp, seed: int) -> None:
    with fast_app.client() as client:
        wanted = body(seed, tool_choice="required")
        reply = streamed(client, **wanted) if seed % 2 else whole(client, **wanted)
    (choice,) = reply.choices
    check_calls(choice)
    assert choice.text == ""


# --- random weights: the fastest way to be sure that nothing but the grammar decides -------------


def small(name: str, **fields: Any) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {"side": {"enum": ["left", "right"]}, "fast": {"type": "boolean"}},
        "required": ["side", "fast"],
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters, **fields}}


TURN, MOVE = small("turn"), small("move")
SMALL = TURN["function"]["parameters"]


def hot(seed: int, **fields: Any) -> dict[str, Any]:
    return {**body(seed, tools=[TURN, MOVE], temperature=4.0, top_k=100), **fields}


def check_small(choice: Any, names: set[str]) -> None:
    assert choice.finish_reason == "tool_calls"
    assert choice.text == ""
    for call in choice.calls:
        assert call.name in names
        jsonschema_rs.validate(SMALL, json.loads(call.arguments))


def test_required_calls_in_any_number(client: httpx.Client) -> None:
    many = whole(client, **hot(1, n=8, tool_choice="required", max_tokens=1500))
    for choice in many.choices:
        check_small(choice, {"turn", "move"})
        assert 1 <= len(choice.calls) <= 16
        assert len({call.id for call in choice.calls}) == len(choice.calls)
    assert max(len(choice.calls) for choice in many.choices) > 1
    single = hot(1, n=8, tool_choice="required", parallel_tool_calls=False)
    assert [len(choice.calls) for choice in whole(client, **single).choices] == [1] * 8


def test_a_named_function_is_called_once_and_shown_alone(client: httpx.Client) -> None:
    choice = {"type": "function", "function": {"name": "move"}}
    for seed in range(4):
        (found,) = whole(client, **hot(seed, tool_choice=choice)).choices
        check_small(found, {"move"})
        assert len(found.calls) == 1
    plan = client.post("/v1/chat/completions/plan", json=hot(1, tool_choice=choice)).json()
    assert '"move"' in plan["prompt"]
    assert '"turn"' not in plan["prompt"]


def test_allowed_tools(client: httpx.Client) -> None:
    tools = [{"type": "function", "function": {"name": "turn"}}]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": tools}}
    for found in whole(client, **hot(1, n=4, tool_choice=choice, max_tokens=1500)).choices:
        check_small(found, {"turn"})


def test_a_stream_tells_the_name_and_then_the_arguments(client: httpx.Client) -> None:
    for seed in range(3):
        wanted = hot(seed, tool_choice="required", parallel_tool_calls=False)
        (one,) = whole(client, **wanted).choices
        (other,) = streamed(client, **wanted).choices
        check_small(other, {"turn", "move"})
        assert [(c.name, c.arguments) for c in one.calls] == [
            (c.name, c.arguments) for c in other.calls
        ]
        assert other.calls[0].num_parts > 3


def test_a_call_that_is_cut_off_is_no_call(client: httpx.Client) -> None:
    (choice,) = whole(client, **hot(1, tool_choice="required", max_tokens=20)).choices
    assert choice.finish_reason == "length"


def test_strict_calls_or_an_answer_in_a_format(client: httpx.Client, app: RunningApp) -> None:
    tools = [small("turn", strict=True)]
    choice = {"structured_outputs": {"choice": ["zz"]}}
    wanted = hot(1, n=8, tools=tools, **choice, max_tokens=1500)
    tokenizer = app.model.tokenizer
    answers = [i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i)[:1] == b"z"]
    against = {str(token_id): -100 for token_id in answers}
    for found in whole(client, **wanted, logit_bias=against).choices:
        check_small(found, {"turn"})
    for found in whole(client, **wanted, logit_bias=dict.fromkeys(against, 100)).choices:
        assert (found.text, found.finish_reason, found.calls) == ("zz", "stop", [])


def test_schemas_that_cannot_be_enforced(client: httpx.Client) -> None:
    bad = {"type": "function", "function": {"name": "bad", "parameters": {"not": {}}}}
    for stream in (False, True):
        wanted = hot(1, tools=[TURN, bad], stream=stream, max_tokens=3)
        reply = client.post("/v1/chat/completions", json={**wanted, "tool_choice": "required"})
        assert reply.status_code == 400
        error = reply.json()["error"]
        assert error["param"] == "tools[1].function.parameters"
        assert "not at the root" in error["message"]
        # Nobody forces it: its schema is the caller's business.
        assert client.post("/v1/chat/completions", json=wanted).status_code == 200
        strict = {**bad["function"], "strict": True}
        tools = [TURN, {"type": "function", "function": strict}]
        reply = client.post("/v1/chat/completions", json={**wanted, "tools": tools})
        assert reply.status_code == 400


@pytest.mark.parametrize("dialect", ["qwen3.5", "pythonic", "gemma4", "deepseek", "llama3"])
def test_another_dialect_by_the_flag(tmp_path: Path, store: Path, dialect: ToolDialect) -> None:
    folder = hot_folder(tmp_path / "model")
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    settings["chat_template"] = QWEN_LIKE
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    config = tiny_config(folder, tool_dialect=dialect)
    with running_app(config, store) as app, app.client() as client:
        wanted = hot(1, n=4, tool_choice="required", parallel_tool_calls=False, think=False)
        for ask in (whole, streamed):
            for choice in ask(client, **wanted).choices:
                check_small(choice, {"turn", "move"})
                assert len(choice.calls) == 1
        # A reply cannot end with its reasoning, and so without the call.
        thinking = {**wanted, "think": True, "n": 8, "max_tokens": 96}
        for choice in whole(client, **thinking).choices:
            assert choice.finish_reason in ("tool_calls", "length")
