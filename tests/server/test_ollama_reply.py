"""Ollama's replies, whole and in lines: their shapes, their counts, and how they end."""

import datetime
from typing import Any

import httpx
import pytest

from flm.errors import EngineDeadError
from flm.server.context import ServerContext
from flm.server.ollama_reply import rfc3339
from flm.types import Settings, ToolCallDelta
from tests.server.conftest import in_process
from tests.server.ollama import (
    CHAT,
    GENERATE,
    PATHS,
    ask,
    lines_of,
    reply_of,
    text_of,
    thought_of,
)
from tests.support.fake_service import FakeInfo, FakeService, Script

pytestmark = pytest.mark.anyio
COUNTS = {
    "prompt_eval_duration": 250_000_000,
    "eval_count": 5,
    "eval_duration": 500_000_000,
}


# --- whole -------------------------------------------------------------------------------------


async def test_a_whole_chat(client: httpx.AsyncClient) -> None:
    reply = await reply_of(client)
    assert reply["model"] == "fake:1b"
    assert reply["message"] == {"role": "assistant", "content": "Hello, world!"}
    assert (reply["done"], reply["done_reason"]) == (True, "stop")
    assert {key: reply[key] for key in COUNTS} == COUNTS
    assert reply["prompt_eval_count"] == len("user: hi\nassistant:")
    assert reply["total_duration"] >= reply["load_duration"] >= 0
    assert "adaptations" not in reply


async def test_a_whole_reply_to_a_prompt(client: httpx.AsyncClient) -> None:
    reply = await reply_of(client, GENERATE)
    assert (reply["response"], reply["done"], reply["done_reason"]) == (
        "Hello, world!",
        True,
        "stop",
    )
    prompt = list(b"user: hi\nassistant:")
    assert reply["context"][: len(prompt)] == prompt
    assert len(reply["context"]) == len(prompt) + reply["eval_count"]


async def test_times_are_those_of_now(client: httpx.AsyncClient) -> None:
    before = datetime.datetime.now(datetime.UTC)
    told = (await reply_of(client))["created_at"]
    assert len(told) == len("2026-12-01T10:22:18.839966183Z")
    found = datetime.datetime.fromisoformat(told)
    assert before - datetime.timedelta(seconds=1) < found < before + datetime.timedelta(minutes=1)
    assert rfc3339(1_700_000_000_000_000_007) == "2023-11-14T22:13:20.000000007Z"


@pytest.mark.parametrize("path", PATHS)
async def test_the_model_is_called_as_it_was_asked_for(
    client: httpx.AsyncClient, path: str
) -> None:
    assert (await reply_of(client, path, model="fake:1b:latest"))["model"] == "fake:1b:latest"


@pytest.mark.parametrize("path", PATHS)
async def test_why_a_reply_ended(
    client: httpx.AsyncClient, service: FakeService, path: str
) -> None:
    short = await reply_of(client, path, options={"num_predict": 2})
    assert (text_of(path, short), short["done_reason"], short["eval_count"]) == (
        "Hello,",
        "length",
        2,
    )
    stopped = await reply_of(client, path, options={"stop": ["wor"]})
    assert (text_of(path, stopped), stopped["done_reason"]) == ("Hello, ", "stop")
    service.script = Script(fail_at=1, error=EngineDeadError("It has stopped."))
    failed = await ask(client, path)
    assert (failed.status_code, failed.json()["error"]) == (503, "It has stopped.")
    assert failed.headers["retry-after"]


# --- in lines ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
async def test_a_stream_is_the_default(client: httpx.AsyncClient, path: str) -> None:
    body: dict[str, Any] = (
        {"messages": [{"role": "user", "content": "hi"}]} if path == CHAT else {"prompt": "hi"}
    )
    reply = await client.post(path, json=body)
    assert reply.headers["content-type"] == "application/x-ndjson"
    assert len(reply.text.splitlines()) == 6


@pytest.mark.parametrize("path", PATHS)
async def test_lines_add_up_to_the_whole(client: httpx.AsyncClient, path: str) -> None:
    whole = await reply_of(client, path)
    *lines, last = await lines_of(client, path)
    assert [text_of(path, line) for line in lines] == ["Hello", ",", " wor", "ld", "!"]
    assert all(not line["done"] and "done_reason" not in line for line in lines)
    assert text_of(path, last) == ""
    for key in (*COUNTS, "done", "done_reason", "prompt_eval_count", "model"):
        assert last[key] == whole[key], key
    assert last.get("context") == whole.get("context")
    assert not any("context" in line for line in lines)


@pytest.mark.parametrize("path", PATHS)
async def test_the_record_comes_with_the_first_line(client: httpx.AsyncClient, path: str) -> None:
    first, *rest = await lines_of(client, path, temprature=1)
    assert [entry["field"] for entry in first["adaptations"]] == ["temprature"]
    assert not any("adaptations" in line for line in rest)
    (only,) = await lines_of(client, path, x=1, options={"num_predict": 1, "stop": ["Hello"]})
    assert (text_of(path, only), only["done"]) == ("", True)
    assert [entry["field"] for entry in only["adaptations"]] == ["x"]


@pytest.mark.parametrize("path", PATHS)
async def test_a_failure_in_a_stream_is_its_last_line(
    client: httpx.AsyncClient, service: FakeService, path: str
) -> None:
    service.script = Script(fail_at=2, error=EngineDeadError("It has stopped."))
    *lines, last = await lines_of(client, path)
    assert [text_of(path, line) for line in lines] == ["Hello", ","]
    assert last == {
        "error": "It has stopped.",
        "type": "server_error",
        "param": None,
        "code": "engine_dead",
    }


async def test_a_failure_of_ours_tells_the_id_alone(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    service.script = Script(fail_at=0, error=ValueError("a secret"))
    (line,) = await lines_of(client)
    assert (line["code"], "secret" in line["error"]) == ("internal", False)
    assert "chatcmpl-" in line["error"]


# --- thoughts, log probabilities ---------------------------------------------------------------


@pytest.fixture
def thinker() -> FakeService:
    infos = [FakeInfo("think:1b", reasons=True, defaults=Settings(think=True))]
    return FakeService(Script(pieces=("Let", " me", "Yes"), num_reasoning=2), infos=infos)


@pytest.mark.parametrize("path", PATHS)
async def test_thoughts_stand_apart(thinker: FakeService, path: str) -> None:
    async with in_process(ServerContext(thinker)) as client:  # type: ignore[arg-type]
        whole = await reply_of(client, path)
        lines = await lines_of(client, path)
    assert (thought_of(path, whole), text_of(path, whole)) == ("Let me", "Yes")
    assert [thought_of(path, line) for line in lines] == ["Let", " me", "", ""]
    assert [text_of(path, line) for line in lines] == ["", "", "Yes", ""]


async def test_a_raw_continuation_has_no_thoughts(thinker: FakeService) -> None:
    async with in_process(ServerContext(thinker)) as client:  # type: ignore[arg-type]
        reply = await reply_of(client, GENERATE, raw=True)
    assert (reply["response"], thought_of(GENERATE, reply)) == ("Let meYes", "")
    assert "context" not in reply


@pytest.mark.parametrize("path", PATHS)
async def test_log_probabilities(client: httpx.AsyncClient, path: str) -> None:
    fields: dict[str, Any] = {"logprobs": True, "top_logprobs": 2, "options": {"num_predict": 3}}
    whole = await reply_of(client, path, **fields)
    assert [entry["token"] for entry in whole["logprobs"]] == ["Hello", ",", " wor"]
    assert [len(entry["top_logprobs"]) for entry in whole["logprobs"]] == [2, 2, 2]
    lines = await lines_of(client, path, **fields)
    told = [entry for line in lines for entry in line.get("logprobs", [])]
    assert told == whole["logprobs"]
    assert "logprobs" not in await reply_of(client, path)


# --- calls -------------------------------------------------------------------------------------


def call(index: int, arguments: str, name: str | None = None) -> ToolCallDelta:
    return ToolCallDelta(0, index, None if name is None else f"call_{index}", name, arguments)


TWO = (
    "I look.",
    call(0, "", "weather"),
    call(0, '{"city": '),
    call(0, '"Paris"}'),
    call(1, '{"city": "Rome"}', "weather"),
)
CALLED = [
    {"id": f"call_{i}", "function": {"index": i, "name": "weather", "arguments": {"city": city}}}
    for i, city in enumerate(("Paris", "Rome"))
]


async def test_calls_of_a_whole_reply(client: httpx.AsyncClient, service: FakeService) -> None:
    service.script = Script(pieces=TWO)
    reply = await reply_of(client)
    assert reply["message"] == {"role": "assistant", "content": "I look.", "tool_calls": CALLED}
    assert reply["done_reason"] == "stop"


async def test_each_call_is_whole_in_one_line(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    service.script = Script(pieces=TWO)
    text, *calls, last = await lines_of(client)
    assert text["message"] == {"role": "assistant", "content": "I look."}
    assert [line["message"]["tool_calls"] for line in calls] == [[item] for item in CALLED]
    assert all(line["message"]["content"] == "" for line in calls)
    assert (last["message"]["content"], last["done_reason"]) == ("", "stop")


async def test_text_behind_a_call_comes_behind_it(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    service.script = Script(pieces=(call(0, "{}", "f"), "Done."))
    line, last = await lines_of(client)
    assert line["message"]["content"] == "Done."
    assert line["message"]["tool_calls"][0]["function"]["arguments"] == {}
    assert last["done"]


@pytest.mark.parametrize("arguments", ['{"city": "Pa', "[1]", '"x"', ""])
async def test_a_call_that_was_cut_is_text(
    client: httpx.AsyncClient, service: FakeService, arguments: str
) -> None:
    service.script = Script(pieces=(call(0, arguments, "weather"), "!"))
    fields = {"options": {"num_predict": 1}}
    reply = await reply_of(client, **fields)
    expected = f'{{"name": "weather", "arguments": {arguments}'
    assert reply["message"] == {"role": "assistant", "content": expected}
    assert reply["done_reason"] == "length"
    assert "".join(text_of(CHAT, line) for line in await lines_of(client, **fields)) == expected
