"""What Ollama's bodies ask for: messages, tools, format, think, prompts, a model to be loaded."""

from typing import Any

import httpx
import pytest

from flm.server.context import ServerContext
from flm.types import OutputConstraint, Settings
from tests.server.conftest import HELLO, TOOL, in_process
from tests.server.ollama import (
    CHAT,
    GENERATE,
    PATHS,
    ask,
    body_of,
    error_of,
    lines_of,
    records_of,
    reply_of,
)
from tests.support.fake_service import FakeInfo, FakeService

pytestmark = pytest.mark.anyio
USER = {"role": "user", "content": "hi"}


# --- messages ----------------------------------------------------------------------------------


async def test_messages_reach_the_template_in_openais_form(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    call = {"function": {"index": 0, "name": "f", "arguments": {"x": 1}}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {**USER, "images": []},
        {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_name": "f"},
        {"role": "tool", "content": "3", "tool_call_id": "call_1"},
        {"role": "assistant"},
        USER,
    ]
    assert await records_of(client, messages=messages, tools=[TOOL]) == {}
    function = {"name": "f", "arguments": {"x": 1}}
    assert service.requests[-1].messages == (
        {"role": "system", "content": "Be brief."},
        USER,
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "Hm.",
            "tool_calls": [{"type": "function", "function": function}],
        },
        {"role": "tool", "content": "2", "name": "f"},
        {"role": "tool", "content": "3", "tool_call_id": "call_1"},
        {"role": "assistant", "content": ""},
        USER,
    )


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ("hi", "messages"),
        (["hi"], "messages[0]"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": "robot", "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([USER, {"role": "user", "content": [{"type": "text"}]}], "messages[1].content"),
        ([{**USER, "images": ["aGk="]}], "messages[0].images"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0].function"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]}],
            "messages[0].tool_calls[0].function.arguments",
        ),
    ],
)
async def test_a_message_that_cannot_be_read(
    client: httpx.AsyncClient, messages: Any, param: str
) -> None:
    assert (await error_of(client, messages=messages))["param"] == param


async def test_unknown_keys_of_a_message_are_recorded(client: httpx.AsyncClient) -> None:
    told = await records_of(client, messages=[{**USER, "mood": "good"}])
    assert set(told) == {"messages[0].mood"}


@pytest.mark.parametrize("fields", [{"images": ["aGk="]}, {"suffix": "end"}])
async def test_what_no_model_here_can_do(client: httpx.AsyncClient, fields: dict[str, Any]) -> None:
    error = await error_of(client, GENERATE, **fields)
    assert error["param"] == next(iter(fields))
    assert "no model here sees" in error["error"] or "cannot fill a gap" in error["error"]
    assert await records_of(client, GENERATE, images=[], suffix="") == {}


# --- tools and formats -------------------------------------------------------------------------


async def test_tools_are_shown(client: httpx.AsyncClient, service: FakeService) -> None:
    bare = {"function": TOOL["function"]}
    assert await records_of(client, tools=[bare]) == {}
    assert service.requests[-1].tools == (TOOL,)
    assert service.requests[-1].calls is None
    assert await records_of(client, tools=[]) == {}
    assert service.requests[-1].tools == ()


async def test_tool_choice_is_enforced_as_everywhere(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    assert await records_of(client, tools=[TOOL], tool_choice="required") == {}
    calls = service.requests[-1].calls
    assert calls is not None
    assert calls.is_forced
    assert await records_of(client, tools=[TOOL], tool_choice="none") == {}
    assert service.requests[-1].tools == ()
    assert (await error_of(client, tool_choice="required"))["param"] == "tool_choice"
    stray = {"type": "function", "function": {"name": TOOL["function"]["name"], "y": 1}}
    assert list(await records_of(client, tools=[TOOL], tool_choice=stray)) == [
        "tool_choice.function.y"
    ]


@pytest.mark.parametrize(
    "tools", ["f", ["f"], [{}], [{"function": {}}], [{"type": "web", "function": {"name": "f"}}]]
)
async def test_a_tool_that_cannot_be_read(client: httpx.AsyncClient, tools: Any) -> None:
    assert str((await error_of(client, tools=tools))["param"]).startswith("tools")


@pytest.mark.parametrize("path", PATHS)
async def test_formats(client: httpx.AsyncClient, service: FakeService, path: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    for value, found in (
        ("json", OutputConstraint("json", None, "format")),
        (schema, OutputConstraint("json", schema, "format")),
        ("", None),
        (None, None),
    ):
        assert await records_of(client, path, format=value) == {}
        assert service.requests[-1].constraint == found
    for wrong in ("xml", 5, [], True):
        assert (await error_of(client, path, format=wrong))["param"] == "format"


async def test_a_format_and_tools_are_held_together(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    assert await records_of(client, tools=[TOOL], format="json") == {}
    assert service.requests[-1].calls is not None
    told = await records_of(client, tools=[TOOL], format="json", tool_choice="required")
    assert told["format"]["action"] == "dropped"


# --- think, keep_alive and the rest ------------------------------------------------------------


@pytest.fixture
def thinker() -> FakeService:
    return FakeService(infos=[FakeInfo("think:1b", reasons=True, defaults=Settings(think=True))])


@pytest.mark.parametrize("path", PATHS)
async def test_think_is_a_switch_or_an_effort_and_sticks(thinker: FakeService, path: str) -> None:
    async with in_process(ServerContext(thinker)) as client:  # type: ignore[arg-type]
        for value, think, effort, inherited in (
            (False, False, None, set()),
            ("low", True, "low", set()),
            ("high", True, "high", set()),
            (True, True, "high", {"reasoning_effort"}),
        ):
            assert set(await records_of(client, path, think=value)) == inherited
            settings = thinker.requests[-1].settings
            assert (settings.think, settings.reasoning_effort) == (think, effort)
        told = await records_of(client, path, think="max")
        assert (told["think"]["action"], told["think"]["applied"]) == ("substituted", "high")
        told = await records_of(client, path, think="low", reasoning_effort="high")
        assert told["reasoning_effort"]["action"] == "dropped"
        assert thinker.requests[-1].settings.reasoning_effort == "low"
        for wrong in ("none", "much", 5, [], {}):
            assert (await error_of(client, path, think=wrong))["param"] == "think"


@pytest.mark.parametrize("value", [True, "low"])
async def test_think_on_a_model_that_cannot(
    client: httpx.AsyncClient, service: FakeService, value: Any
) -> None:
    entry = (await records_of(client, think=value))["think"]
    assert (entry["action"], entry["asked"]) == ("dropped", value)
    assert service.requests[-1].sent == {}


async def test_keep_alive_has_no_effect(client: httpx.AsyncClient) -> None:
    for kept in ("5m", 300, -1, "-1m", "1h30m", "1.5h", 0.5, "10"):
        assert await records_of(client, keep_alive=kept) == {}
    for none in (0, "0", "0s", 0.0):
        entry = (await records_of(client, keep_alive=none))["keep_alive"]
        assert entry["action"] == "dropped"
    for wrong in ("soon", "5 m", "m", True, [], {}):
        assert (await error_of(client, keep_alive=wrong))["param"] == "keep_alive"


@pytest.mark.parametrize("path", PATHS)
async def test_fields_of_newer_clients_are_recorded(client: httpx.AsyncClient, path: str) -> None:
    assert await records_of(client, path, truncate=False, shift=False) == {}
    fields = {"truncate": True, "shift": True, "width": 8, "height": 8, "steps": 1}
    assert set(await records_of(client, path, **fields)) == set(fields)
    assert set(await records_of(client, path, top_logprobs=2)) == {"top_logprobs"}
    assert (await error_of(client, path, top_logprobs=21))["param"] == "top_logprobs"


# --- prompts -----------------------------------------------------------------------------------


async def test_a_prompt_goes_through_the_chat_template(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    assert await records_of(client, GENERATE) == {}
    assert service.requests[-1].messages == (USER,)
    assert await records_of(client, GENERATE, system="Be brief.", template="") == {}
    assert service.requests[-1].messages == ({"role": "system", "content": "Be brief."}, USER)
    told = await records_of(client, GENERATE, template="{{ .Prompt }}")
    assert told["template"]["action"] == "dropped"


async def test_a_raw_prompt_is_read_as_it_is(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    reply = await reply_of(client, GENERATE, raw=True, enable_thinking=True)
    request = service.requests[-1]
    assert (request.prompts, request.messages) == (("hi",), None)
    assert reply["prompt_eval_count"] == 2
    assert [entry["field"] for entry in reply["adaptations"]] == ["enable_thinking"]
    for name, value in (("system", "x"), ("template", "x"), ("context", [1])):
        assert (await error_of(client, GENERATE, raw=True, **{name: value}))["param"] == name
    assert "adaptations" not in await reply_of(client, GENERATE, raw=True, context=[], system="")


async def test_a_context_comes_before_the_prompt(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    first = await reply_of(client, GENERATE)
    again = await reply_of(client, GENERATE, context=first["context"])
    assert again["context"][: len(first["context"])] == first["context"]
    assert service.requests[-1].history_ids == tuple(first["context"])
    for wrong in ([-1], ["a"], "a", [1.5]):
        assert str((await error_of(client, GENERATE, context=wrong))["param"]).startswith("context")


async def test_a_prompt_that_is_too_long_is_blamed(client: httpx.AsyncClient) -> None:
    error = await error_of(client, GENERATE, prompt="x" * 600)
    assert (error["param"], error["code"]) == ("prompt", "context_length_exceeded")
    error = await error_of(client, CHAT, messages=[{**USER, "content": "x" * 600}])
    assert error["param"] == "messages"


# --- loading -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_for_nothing_loads_the_model(
    client: httpx.AsyncClient, service: FakeService, path: str, stream: bool
) -> None:
    for empty in ({"messages": [], "prompt": ""}, {"messages": None, "prompt": None}):
        body = {key: value for key, value in empty.items() if key in body_of(path)}
        reply = await reply_of(client, path, model="org/other:2b", stream=stream, **body)
        assert (reply["model"], reply["done"], reply["done_reason"]) == (
            "org/other:2b",
            True,
            "load",
        )
        assert "adaptations" not in reply
    assert service.current.model_id == "org/other:2b"
    assert (service.requests, service.num_leases) == ([], 0)


async def test_what_a_loading_request_cannot_do_is_recorded(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    fields: dict[str, Any] = {"messages": [], "options": {"temperature": 0}, "tools": []}
    told = await records_of(client, **fields, keep_alive="5m", x=1)
    assert list(told) == ["options", "x"]
    assert service.current.store.peek({}).inherited == ()
    error = await error_of(client, **fields, adaptations="refuse")
    assert (error["code"], error["param"]) == ("refused", "options")
    assert "adaptations" not in await reply_of(client, **fields, adaptations="silent")


@pytest.mark.parametrize("path", PATHS)
async def test_a_model_is_not_unloaded_and_that_is_told(
    client: httpx.AsyncClient, service: FakeService, path: str
) -> None:
    empty = {"messages": []} if path == CHAT else {"prompt": ""}
    reply = await reply_of(client, path, keep_alive=0, **empty)
    assert reply["done_reason"] == "unload"
    (entry,) = reply["adaptations"]
    assert (entry["field"], entry["action"]) == ("keep_alive", "dropped")
    assert service.current.model_id == "fake:1b"
    # What is not loaded need not be unloaded, and is not loaded for that.
    other = await reply_of(client, path, model="org/other:2b", keep_alive="0s", **empty)
    assert (other["done_reason"], "adaptations" in other) == ("unload", False)
    assert service.current.model_id == "fake:1b"
    refused = await error_of(client, path, keep_alive=0, adaptations="refuse", **empty)
    assert refused["param"] == "keep_alive"


@pytest.mark.parametrize("keep_alive", [0, "5m", None])
async def test_loading_a_model_that_is_not_there(
    client: httpx.AsyncClient, keep_alive: Any
) -> None:
    reply = await ask(client, messages=[], model="nope", keep_alive=keep_alive)
    assert reply.status_code == 404


async def test_a_plan_of_nothing_is_an_error(client: httpx.AsyncClient) -> None:
    for path, fields, param in (
        (CHAT, {"messages": []}, "messages"),
        (GENERATE, {"prompt": ""}, "prompt"),
        (GENERATE, {"prompt": "", "raw": True}, "prompt"),
    ):
        assert (await error_of(client, f"{path}/plan", **fields))["param"] == param


# --- the rest of the body ----------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
async def test_the_shared_fields_are_there(
    client: httpx.AsyncClient, service: FakeService, path: str
) -> None:
    fields = {"min_tokens": 1, "ignore_eos": True, "logit_bias": {"5": 1}, "cache_prompt": False}
    assert await records_of(client, path, **fields, request_id="x") == {}
    request = service.requests[-1]
    assert (request.min_tokens, request.ignore_eos, request.logit_bias, request.cache_prompt) == (
        1,
        True,
        ((5, 1.0),),
        False,
    )


async def test_nulls_are_absent(client: httpx.AsyncClient, service: FakeService) -> None:
    nothing = dict.fromkeys(("options", "format", "think", "keep_alive", "tools", "stream"))
    lines = await lines_of(client, messages=HELLO, **nothing)
    assert len(lines) == 6
    assert service.requests[-1].sent == {}
