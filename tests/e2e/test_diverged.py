"""A prompt that leaves what is cached says where."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.support.app import RunningApp
from tests.support.replies import CHAT, COMPLETIONS

RULES = "You are the helper of a small harbour. Answer in one line. "


def chat(day: str, question: str = "Who comes in?", **fields: Any) -> dict[str, Any]:
    system = f"{RULES}Today is {day}. The ferry leaves at noon."
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": question},
    ]
    return {"messages": messages, "max_tokens": 2, "seed": 1, **fields}


def details(client: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    """``prompt_tokens_details`` of a whole reply, or of a stream's last chunk."""
    if not body.get("stream"):
        return client.post(path, json=body).json()["usage"]["prompt_tokens_details"]
    body = {**body, "stream_options": {"include_usage": True}}
    with client.stream("POST", path, json=body) as reply:
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    return json.loads(lines[-2])["usage"]["prompt_tokens_details"]


@pytest.fixture
def client(app: RunningApp) -> Any:
    app.run(app.service.reload())
    with app.client() as client:
        yield client


def plan(client: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    return client.post(f"{path}/plan", json=body).json()


@pytest.mark.parametrize("stream", [False, True])
def test_a_changed_date_in_the_system_message_is_named(client: httpx.Client, stream: bool) -> None:
    assert "diverged_at" not in details(client, CHAT, chat("Monday"))
    body = chat("Friday")
    planned = plan(client, CHAT, body)
    found = planned["divergence"]
    assert found["message"] == 0
    assert found["before"].endswith("Today is")
    assert found["prompt"].startswith(" Friday. The")
    assert found["cached"].startswith(" Monday. The")
    told = details(client, CHAT, {**body, "stream": stream})
    assert told == {
        "cached_tokens": planned["cached_tokens"],
        "diverged_at": found["diverged_at"],
    }
    assert told["cached_tokens"] <= told["diverged_at"] < told["cached_tokens"] + 32
    # Now it is cached too, so there is nothing to explain.
    assert plan(client, CHAT, body)["divergence"] is None
    assert "diverged_at" not in details(client, CHAT, {**body, "stream": stream})


def test_the_message_is_the_one_that_differs(client: httpx.Client) -> None:
    details(client, CHAT, chat("Monday", "Who comes in at seven in the morning with the mail?"))
    other = chat("Monday", "Who comes in at eight in the morning with the mail?")
    found = plan(client, CHAT, other)["divergence"]
    assert (found["message"], found["prompt"][:6]) == (1, " eight")
    # A message that ends sooner ended inside itself.
    shorter = plan(client, CHAT, chat("Monday", "Who comes in"))["divergence"]
    assert (shorter["message"], shorter["cached"][:3]) == (1, " at")


def test_markup_is_in_no_message(client: httpx.Client) -> None:
    body = chat("Monday")
    details(client, CHAT, {**body, "messages": [*body["messages"], *body["messages"]]})
    swapped = [body["messages"][0], {"role": "assistant", "content": "Who comes in?"}]
    found = plan(client, CHAT, {**body, "messages": swapped})["divergence"]
    assert found["message"] is None
    assert found["prompt"].startswith("assistant\nWho comes")
    assert found["cached"].startswith("user\nWho comes")


@pytest.mark.parametrize("stream", [False, True])
def test_completions_say_it_too(client: httpx.Client, stream: bool) -> None:
    first, second = list(range(10, 110)), [*range(10, 60), 300, *range(61, 110)]
    fields = {"max_tokens": 2, "seed": 1}
    details(client, COMPLETIONS, {"prompt": first, **fields})
    body = {"prompt": second, "stream": stream, **fields}
    found = plan(client, COMPLETIONS, body)["divergence"]
    assert (found["diverged_at"], found["message"]) == (50, None)
    assert details(client, COMPLETIONS, body) == {"cached_tokens": 32, "diverged_at": 50}


def test_several_prompts_are_told_apart_in_the_plan(client: httpx.Client) -> None:
    first, second = list(range(10, 110)), [*range(10, 60), 300, *range(61, 110)]
    body = {"prompt": [first, second], "max_tokens": 2, "seed": 1}
    details(client, COMPLETIONS, {**body, "prompt": first})
    planned = plan(client, COMPLETIONS, body)
    assert planned["divergence"] is None
    ats = [item["divergence"] and item["divergence"]["diverged_at"] for item in planned["prompts"]]
    assert ats == [None, 50]
    assert details(client, COMPLETIONS, body) == {"cached_tokens": 128}


@pytest.mark.parametrize("fields", [{"cache_prompt": False}, {"echo": True, "logprobs": 1}])
def test_who_does_not_read_the_cache_leaves_nothing(
    client: httpx.Client, fields: dict[str, Any]
) -> None:
    first, second = list(range(10, 110)), [*range(10, 60), 300, *range(61, 110)]
    details(client, COMPLETIONS, {"prompt": first, "max_tokens": 2})
    body = {"prompt": second, "max_tokens": 2, **fields}
    planned = plan(client, COMPLETIONS, body)
    assert (planned["cached_tokens"], planned["divergence"]) == (0, None)
    assert details(client, COMPLETIONS, body) == {"cached_tokens": 0}


def test_a_plan_of_it_changes_nothing(app: RunningApp, client: httpx.Client) -> None:
    details(client, CHAT, chat("Monday"))
    stats, idle = app.model.engine.stats(), blocks(app)
    for _ in range(3):
        assert plan(client, CHAT, chat("Friday"))["divergence"] is not None
    assert (app.model.engine.stats(), blocks(app)) == (stats, idle)


def blocks(app: RunningApp) -> object:
    """The idle blocks in the order in which they will be given up."""
    return app.model.engine._engine._cache._allocator.idle_blocks()  # type: ignore[attr-defined]


def test_plans_over_tool_calls_find_the_call(client: httpx.Client) -> None:
    def body(city: str) -> dict[str, Any]:
        call = {
            "id": "call_1",
            "type": "function",
            "function": {"name": "weather", "arguments": json.dumps({"city": city})},
        }
        messages = [
            *chat("Monday")["messages"],
            {"role": "assistant", "content": "I look it up.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "Rain."},
        ]
        return {"messages": messages, "max_tokens": 2, "seed": 1}

    details(client, CHAT, body("Hamburg"))
    found = plan(client, CHAT, body("Bremen"))["divergence"]
    assert found["message"] == 2
    assert found["prompt"].startswith("B")
    assert found["cached"].startswith("H")


def test_clients_that_come_together_read_their_system_message_once(client: httpx.Client) -> None:
    rules = " ".join(f"Rule {number}: be kind to boat {number}." for number in range(60))

    def ask(number: int) -> Any:
        messages = [
            {"role": "system", "content": rules},
            {"role": "user", "content": f"{number} boats?"},
        ]
        body = {"messages": messages, "max_tokens": 2, "seed": 1}
        return client.post(CHAT, json=body).json()["usage"]

    with ThreadPoolExecutor(8) as pool:
        usages = list(pool.map(ask, range(8)))
    read = [
        usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] for usage in usages
    ]
    # One reads it all; the others what is behind the last whole block of it.
    assert max(read) == usages[0]["prompt_tokens"] > 512
    assert sorted(read)[-2] < 64
