"""Anthropic's messages and OpenAI's chat say the same, from one engine with one memory."""

import json
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest

from flm.server.schemas.anthropic_replies import MessageReply
from tests.e2e.conftest import hot_folder, tiny_config
from tests.server.test_anthropic_reply import summed
from tests.support.app import RunningApp, running_app
from tests.support.replies import CHAT, whole
from tests.support.scripted import saying
from tests.support.tiny import IM_END, tiny_tokenizer
from tests.text.templates import QWEN_LIKE

PATH = "/v1/messages"
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Tell me about Paris."}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 30},
        "unit": {"enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOL = {"name": "get_weather", "description": "The weather of a place.", "input_schema": SCHEMA}
FUNCTION = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a place.",
        "parameters": SCHEMA,
    },
}


def ask(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    reply = client.post(PATH, json={"max_tokens": 20, "messages": HELLO, **fields})
    assert reply.status_code == 200, reply.text
    MessageReply.model_validate(reply.json())
    return reply.json()  # type: ignore[no-any-return]


def stream(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    sent = {"max_tokens": 20, "messages": HELLO, **fields, "stream": True}
    reply = client.post(PATH, json=sent)
    assert reply.status_code == 200, reply.text
    frames = [frame for frame in reply.text.split("\n\n") if frame]
    chunks = [json.loads(frame.partition("\ndata: ")[2]) for frame in frames]
    return summed([chunk for chunk in chunks if chunk["type"] != "ping"])


def count(client: httpx.Client, **fields: Any) -> int:
    reply = client.post(f"{PATH}/count_tokens", json={"messages": HELLO, **fields})
    assert reply.status_code == 200, reply.text
    return int(reply.json()["input_tokens"])


def text_of(message: dict[str, Any]) -> str:
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


def input_tokens(message: dict[str, Any]) -> int:
    usage = message["usage"]
    return int(usage["input_tokens"] + usage["cache_read_input_tokens"])


@pytest.mark.parametrize("send", [ask, stream])
def test_a_message_is_the_chat(client: httpx.Client, send: Any) -> None:
    fields: dict[str, Any] = {"seed": 7, "max_tokens": 20, "top_k": 50}
    theirs = whole(client, messages=[{"role": "system", "content": "Be kind."}, *HELLO], **fields)
    ours = send(client, **fields, system=[{"type": "text", "text": "Be kind."}])
    assert text_of(ours) == theirs.text != ""
    assert theirs.usage is not None
    assert input_tokens(ours) == theirs.usage["prompt_tokens"]
    assert ours["usage"]["output_tokens"] == theirs.usage["completion_tokens"]


@pytest.mark.parametrize("send", [ask, stream])
def test_a_message_goes_on_where_the_last_one_ends(client: httpx.Client, send: Any) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "The answer is:"}]
    fields: dict[str, Any] = {"messages": messages, "seed": 5, "max_tokens": 12}
    theirs = whole(client, **fields, continue_final_message=True)
    assert text_of(send(client, **fields)) == theirs.text != ""
    apart = send(client, **fields, continue_final_message=False)
    assert text_of(apart) == whole(client, **fields).text


def test_calls_and_results_are_read_as_in_a_chat(client: httpx.Client) -> None:
    call = {"id": "toolu_1", "name": "get_weather", "input": {"city": "Paris", "unit": "celsius"}}
    function = {"name": call["name"], "arguments": call["input"]}
    theirs = client.post(
        f"{CHAT}/plan",
        json={
            "tools": [FUNCTION],
            "messages": [
                *HELLO,
                {
                    "role": "assistant",
                    "content": "Let me see.",
                    "tool_calls": [{"id": "toolu_1", "type": "function", "function": function}],
                },
                {"role": "tool", "tool_call_id": "toolu_1", "content": "21"},
                {"role": "user", "content": "And?"},
            ],
        },
    ).json()
    fields = {
        "tools": [TOOL],
        "messages": [
            *HELLO,
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "Let me see."}, {"type": "tool_use", **call}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "21"},
                    {"type": "text", "text": "And?"},
                ],
            },
        ],
    }
    ours = client.post(f"{PATH}/plan", json={"max_tokens": 5, **fields}).json()
    assert ours["prompt"] == theirs["prompt"]
    assert count(client, **fields) == ours["prompt_tokens"] == theirs["prompt_tokens"]
    assert input_tokens(ask(client, **fields)) == ours["prompt_tokens"]


def test_what_one_dialect_sets_the_other_finds(client: httpx.Client) -> None:
    first = ask(client, temperature=0.5)
    told = whole(client, messages=HELLO, max_tokens=1).adaptations
    assert [entry["field"] for entry in told] == ["temperature"]
    assert first["id"] in told[0]["reason"]


def test_a_prompt_read_without_a_reply_is_in_the_cache(client: httpx.Client) -> None:
    messages = [{"role": "user", "content": "This is read once and then found again. " * 8}]
    first = ask(client, messages=messages, max_tokens=0)
    assert (first["content"], first["stop_reason"]) == ([], "max_tokens")
    again = ask(client, messages=messages, max_tokens=1)
    assert again["usage"]["cache_read_input_tokens"] > 0
    assert input_tokens(again) == input_tokens(first) == count(client, messages=messages)
    told = stream(client, messages=messages, max_tokens=1)
    assert told["usage"] == again["usage"]


def test_a_prompt_beyond_the_context_is_counted(client: httpx.Client) -> None:
    messages = [{"role": "user", "content": "a b c d e f g " * 400}]
    assert count(client, messages=messages) > 2048
    reply = client.post(PATH, json={"max_tokens": 1, "messages": messages})
    assert reply.status_code == 400
    assert reply.json()["error"]["message"].startswith("prompt is too long")


# --- calls of a model that nobody forces -------------------------------------------------------


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Any:
    """The tiny model with a template that knows tools."""
    folder = hot_folder(tmp_path_factory.mktemp("caller") / "caller")
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**config, "chat_template": QWEN_LIKE}), "utf-8")
    with running_app(tiny_config(folder), store) as running:
        yield running


def said(app: RunningApp, text: str, send: Any, **fields: Any) -> dict[str, Any]:
    ids: list[int] = tiny_tokenizer().encode(text, add_special_tokens=False).ids
    with app.client() as client, saying([*ids, IM_END]):
        wish = {"tools": [TOOL], "max_tokens": 400, **fields}
        return send(client, **wish)  # type: ignore[no-any-return]


@pytest.mark.parametrize("send", [ask, stream])
def test_a_call_is_a_block(caller: RunningApp, send: Any) -> None:
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    message = said(caller, f"Let me see.\n{call}\n{call}", send)
    kinds = [block["type"] for block in message["content"]]
    assert kinds == ["text", "tool_use", "tool_use"]
    assert message["content"][0]["text"] == "Let me see."
    assert message["content"][1]["input"] == {"city": "Rome"}
    assert message["stop_reason"] == "tool_use"
    ids = {block["id"] for block in message["content"][1:]}
    assert len(ids) == 2
    assert all(name.startswith("toolu_") for name in ids)


@pytest.mark.parametrize("send", [ask, stream])
def test_a_call_that_breaks_is_text(caller: RunningApp, send: Any) -> None:
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": Rome}}\n</tool_call>'
    message = said(caller, f"See:\n{call}", send)
    assert [block["type"] for block in message["content"]] == ["text", "text"]
    assert '"arguments": {"city": Rome}' in message["content"][1]["text"]
    assert message["stop_reason"] == "end_turn"


@pytest.mark.parametrize("send", [ask, stream])
def test_a_call_that_is_cut_is_a_block_without_what_is_uncertain(
    caller: RunningApp, send: Any
) -> None:
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "path": "/etc/pass'
    message = said(caller, call + "wd" * 200, send, max_tokens=80)
    (block,) = message["content"]
    assert block["input"] == {"city": "Rome"}
    assert message["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("send", [ask, stream])
def test_what_is_forced_fits_the_schema(client: httpx.Client, send: Any) -> None:
    validator = jsonschema_rs.validator_for(SCHEMA)
    wish: dict[str, Any] = {"seed": 3, "max_tokens": 200}
    for choice in (
        {"type": "tool", "name": "get_weather"},
        {"type": "any", "disable_parallel_tool_use": True},
    ):
        message = send(client, **wish, tools=[TOOL], tool_choice=choice)
        (block,) = message["content"]
        assert message["stop_reason"] == "tool_use"
        assert validator.is_valid(block["input"])
    wanted = {"format": {"type": "json_schema", "schema": SCHEMA}}
    assert validator.is_valid(json.loads(text_of(send(client, **wish, output_config=wanted))))


# --- the real model ----------------------------------------------------------------------------


def test_the_real_model_says_the_same(fast_app: RunningApp) -> None:
    fields: dict[str, Any] = {"temperature": 0, "max_tokens": 6}
    begun = [*HELLO, {"role": "assistant", "content": "Paris is the capital of"}]
    with fast_app.client() as client:
        for messages, continues in ((HELLO, False), (begun, True)):
            wish = {**fields, "messages": messages}
            theirs = whole(client, **wish, continue_final_message=continues)
            assert text_of(ask(client, **wish)) == text_of(stream(client, **wish)) == theirs.text
            assert theirs.text


def test_the_real_model_calls_the_tool_that_it_must(fast_app: RunningApp) -> None:
    choice = {"type": "tool", "name": "get_weather"}
    with fast_app.client() as client:
        wish = {"tools": [TOOL], "temperature": 0, "max_tokens": 60, "tool_choice": choice}
        message = stream(client, **wish)
    (block,) = message["content"]
    assert jsonschema_rs.validator_for(SCHEMA).is_valid(block["input"])
