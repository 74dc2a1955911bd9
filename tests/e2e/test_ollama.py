"""Ollama's endpoints and OpenAI's say the same, from one engine with one memory."""

import json
from typing import Any

import httpx
import pytest

from tests.support.app import RunningApp, wait_until

SAMPLED: dict[str, Any] = {"seed": 7, "temperature": 2.0, "top_k": 50, "top_p": 0.9, "min_p": 0.0}
HELLO = {"messages": [{"role": "user", "content": "Hello there"}]}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"enum": [1, 2]}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}


def post(client: httpx.Client, path: str, **body: Any) -> Any:
    fields = {"stream": False, **body} if path.startswith("/api") else body
    reply = client.post(path, json=fields)
    assert reply.status_code == 200, reply.text
    return reply.json()


def lines_of(client: httpx.Client, path: str, **body: Any) -> list[dict[str, Any]]:
    reply = client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    return [json.loads(line) for line in reply.text.splitlines()]


def test_a_chat_is_the_one_of_v1(client: httpx.Client) -> None:
    theirs = post(client, "/v1/chat/completions", **HELLO, **SAMPLED, max_tokens=12, logprobs=True)
    fields = {**HELLO, "options": {**SAMPLED, "num_predict": 12}, "logprobs": True}
    ours = post(client, "/api/chat", **fields)
    (choice,) = theirs["choices"]
    assert ours["message"]["content"] == choice["message"]["content"]
    assert ours["logprobs"] == choice["logprobs"]["content"]
    assert ours["prompt_eval_count"] == theirs["usage"]["prompt_tokens"]
    assert ours["eval_count"] == theirs["usage"]["completion_tokens"]
    *lines, last = lines_of(client, "/api/chat", **fields)
    said = "".join(line["message"]["content"] for line in (*lines, last))
    assert said == ours["message"]["content"]
    told = [entry for line in (*lines, last) for entry in line.get("logprobs", [])]
    assert told == ours["logprobs"]
    assert last["done_reason"] == ours["done_reason"]


def test_a_prompt_is_the_chat_or_the_completion(client: httpx.Client) -> None:
    options = {**SAMPLED, "num_predict": 8}
    chat = post(client, "/v1/chat/completions", **HELLO, **SAMPLED, max_tokens=8)
    ours = post(client, "/api/generate", prompt="Hello there", options=options)
    assert ours["response"] == chat["choices"][0]["message"]["content"]
    raw = post(client, "/v1/completions", prompt="Hello there", **SAMPLED, max_tokens=8)
    ours = post(client, "/api/generate", prompt="Hello there", raw=True, options=options)
    assert ours["response"] == raw["choices"][0]["text"]


@pytest.mark.parametrize("stream", [False, True])
def test_formats_are_enforced(client: httpx.Client, stream: bool) -> None:
    schema = {"enum": ["yes", "no"]}
    fields = {**HELLO, "options": SAMPLED, "format": schema, "stream": stream}
    lines = lines_of(client, "/api/chat", **fields)
    text = "".join(line["message"]["content"] for line in lines)
    assert json.loads(text) in ("yes", "no")
    wrong = client.post("/api/chat", json={**HELLO, "format": {"type": "nothing"}})
    assert wrong.status_code == 400
    assert wrong.json()["param"].startswith("format")


def test_forced_calls_are_objects(client: httpx.Client) -> None:
    fields = {**HELLO, "options": {**SAMPLED, "num_predict": 400}, "tools": [TOOL]}
    whole = post(client, "/api/chat", **fields, tool_choice="required")
    lines = lines_of(client, "/api/chat", **fields, tool_choice="required")
    calls = whole["message"]["tool_calls"]
    for call in calls:
        arguments = call["function"]["arguments"]
        assert (set(arguments), call["function"]["name"]) == ({"city", "days"}, "get_weather")
    told = [item for line in lines for item in line["message"].get("tool_calls", [])]
    assert [item["function"] for item in told] == [item["function"] for item in calls]
    # The calls go back as they came, with a result, and nothing of them is unread.
    result = {"role": "tool", "tool_name": "get_weather", "content": "sunny"}
    history = [*HELLO["messages"], whole["message"], result]
    plan = post(client, "/api/chat/plan", messages=history, tools=[TOOL])
    assert "sunny" in plan["prompt"]
    assert "get_weather" in plan["prompt"]
    assert not [item for item in plan["adaptations"] if item["action"] != "defaulted"]


def test_an_option_sticks_for_every_endpoint(client: httpx.Client) -> None:
    post(client, "/api/chat", **HELLO, options={"repeat_penalty": 1.25, "num_predict": 1})
    reply = post(client, "/v1/chat/completions", **HELLO, max_tokens=1)
    told = {item["field"]: item["applied"] for item in reply["adaptations"]}
    assert told == {"repetition_penalty": 1.25}


def test_a_cancelled_chat_gives_its_memory_back(app: RunningApp, client: httpx.Client) -> None:
    body = {**HELLO, "ignore_eos": True, "request_id": "x"}
    with app.client() as own, own.stream("POST", "/api/chat", json=body) as reply:
        lines = reply.iter_lines()
        told = [next(lines) for _ in range(5)]
        assert client.post("/api/cancel", json={"request_id": "x"}).json()["cancelled"]
        told += list(lines)
    last = json.loads(told[-1])
    assert (last["done"], last["done_reason"]) == (True, "cancel")
    wait_until(lambda: app.model.engine.stats().active_kv_tokens == 0)


def test_the_model_is_listed_and_shown(app: RunningApp, client: httpx.Client) -> None:
    (tag,) = client.get("/api/tags").json()["models"]
    (loaded,) = client.get("/api/ps").json()["models"]
    assert tag["name"] == loaded["name"] == app.model.model_id
    assert tag["details"]["format"] == "safetensors"
    shown = post(client, "/api/show", model=tag["name"])
    assert shown["model_info"]["llama.context_length"] == loaded["context_length"] == 2048
    assert shown["template"] == app.model.template.source
    assert post(client, "/api/chat", model=f"{tag['name']}:latest")["done_reason"] == "load"


# --- with the real model -----------------------------------------------------------------------

FRANCE = "What is the capital of France?"


def test_the_real_model_says_the_same_in_both(real_app: RunningApp) -> None:
    chat = {"messages": [{"role": "user", "content": FRANCE}]}
    with real_app.client() as client:
        theirs = post(client, "/v1/chat/completions", **chat, temperature=0)
        ours = post(client, "/api/chat", **chat, options={"temperature": 0})
        lines = lines_of(client, "/api/generate", prompt=FRANCE, options={"temperature": 0})
    text = theirs["choices"][0]["message"]["content"]
    assert text == ours["message"]["content"] == "".join(line["response"] for line in lines)
    assert (ours["done_reason"], lines[-1]["done_reason"]) == ("stop", "stop")


def test_a_context_is_the_conversation_so_far(real_app: RunningApp) -> None:
    greedy = {"temperature": 0, "num_predict": 20}
    with real_app.client() as client:
        first = post(client, "/api/generate", prompt=FRANCE, options=greedy)
        turns = [
            {"role": "user", "content": FRANCE},
            {"role": "assistant", "content": first["response"]},
            {"role": "user", "content": "And of Spain?"},
        ]
        behind = {"prompt": "And of Spain?", "context": first["context"]}
        plans = [
            post(client, "/api/chat/plan", messages=turns),
            post(client, "/api/generate/plan", **behind),
        ]
        replies = [
            post(client, "/api/chat", messages=turns, options=greedy)["message"]["content"],
            post(client, "/api/generate", **behind, options=greedy)["response"],
        ]
        too_high = client.post("/api/generate", json={**behind, "context": [10**6]})
    assert plans[0]["prompt"] == plans[1]["prompt"]
    assert plans[0]["prompt_tokens"] == plans[1]["prompt_tokens"]
    assert replies[0] == replies[1]
    assert (too_high.status_code, too_high.json()["param"]) == (400, "context")


def test_names_that_the_template_leaves_out_are_on_the_record(client: httpx.Client) -> None:
    def told(path: str, **body: Any) -> list[str]:
        reply = post(client, path, **body, max_tokens=1)
        return [entry["field"] for entry in reply.get("adaptations", [])]

    said = {"role": "user", "content": "hi"}
    call = {"type": "function", "function": {"name": "get_weather", "arguments": {}}}
    asked = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "content": "sun"}
    ours = [{**said, "name": "Ann"}, asked, {**result, "name": "get_weather"}]
    theirs = [said, asked, {**result, "tool_name": "get_weather"}, {**result, "tool_name": "f"}]
    chat = "/v1/chat/completions"
    assert told(chat, messages=ours) == told(f"{chat}/plan", messages=ours) == ["messages[0].name"]
    assert told("/api/chat", messages=theirs) == ["messages[3].tool_name"]
    refused = client.post(chat, json={"messages": ours, "adaptations": "refuse"})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "messages[0].name"
    assert told(chat, messages=ours, adaptations="silent") == []
