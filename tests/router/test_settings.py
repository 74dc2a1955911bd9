"""Every setting at eight providers: the record and the wire, alone and all together."""

import copy
from typing import Any

import pytest

from flm.router import (
    CacheConfig,
    Config,
    Message,
    Reasoning,
    Request,
    RouterConfig,
    ToolChoice,
    UnsupportedFeatureError,
)
from flm.router.adapt import put
from flm.router.call import Call, make_call
from flm.router.compatible import PROVIDERS
from tests.router.other_rows import ACCOUNT, CACHE, SWITCHES
from tests.router.setting_rows import FORMATS, MODELS, REASONING, SAMPLING, TOOLS, Cell, Row
from tests.router.wires import TOOLBOX, WIRES
from tests.support.providers import Scripted, chat_reply, router_of

ROWS = [*SAMPLING, *FORMATS, *TOOLS, *REASONING, *SWITCHES, *CACHE, *ACCOUNT]
LIMIT = ("config.max_tokens", "defaulted", None, 16384)
# In Anthropic's table these come before the length limit, everything else after it.
EARLY = ("cache.key", "reasoning.")


def request_of(provider: str, row: Row) -> Request:
    messages = [Message.user("hi")]
    if row.ends_open:
        messages.append(Message.assistant("Once"))
    tools = TOOLBOX if row.needs_tools else ()
    model = f"{provider}:{MODELS[provider]}"
    return Request(model=model, messages=messages, tools=tools, config=row.config)


def call_of(request: Request, policy: Any = "note") -> Call:
    name, _, model = request.model.partition(":")
    return make_call(request, PROVIDERS[name], model, policy, base_url="http://x", stream=False)


def recorded(call: Call) -> list[tuple[Any, ...]]:
    return [(item.field, item.action, item.asked, item.applied) for item in call.records]


def expected_records(provider: str, row: Row, cell: Cell) -> list[tuple[Any, ...]]:
    own = (
        []
        if cell.action is None
        else [(f"config.{row.setting}", cell.action, row.asked, cell.applied)]
    )
    if provider != "anthropic" or row.name == "max_tokens":
        return own
    return [*own, LIMIT] if row.setting.startswith(EARLY) else [LIMIT, *own]


def expected_body(provider: str, row: Row, cell: Cell) -> dict[str, Any]:
    """The body of the same request without settings, with what the cell says is sent."""
    bare = Row("bare", Config(), "", None, (), row.needs_tools, row.ends_open)
    request = request_of(provider, bare)
    body = copy.deepcopy(call_of(request).body)
    if cell.action == "client_side" and row.needs_tools:
        body["tools"] = body["tools"][:2]
    if cell.action == "client_side" and not row.needs_tools:
        body["stream"] = True
    for path, value in cell.sent.items():
        put(body, path, row.asked if value is ... else value)
    if provider == "anthropic" and row.config.cache is not None and row.name != "cache_off":
        mark = {"type": "ephemeral", **({"ttl": "1h"} if row.name == "long" else {})}
        body["messages"][-1]["content"][-1]["cache_control"] = mark
    return body


CASES = [
    pytest.param(provider, row, row.cells[place], id=f"{provider}-{row.name}")
    for place, provider in enumerate(MODELS)
    for row in ROWS
]


def test_every_row_has_a_cell_for_every_provider() -> None:
    assert {len(row.cells) for row in ROWS} == {len(MODELS)}
    settings = {row.setting.partition(".")[0] for row in ROWS}
    assert settings == set(Config.__dataclass_fields__)


@pytest.mark.parametrize(("provider", "row", "cell"), CASES)
def test_each_setting_alone(provider: str, row: Row, cell: Cell) -> None:
    request = request_of(provider, row)
    if cell.action == "refused":
        with pytest.raises(UnsupportedFeatureError) as caught:
            call_of(request)
        assert caught.value.feature == f"config.{row.setting}"
        assert caught.value.provider == provider
        return
    call = call_of(request)
    assert recorded(call) == expected_records(provider, row, cell)
    assert call.body == expected_body(provider, row, cell)


@pytest.mark.parametrize(("provider", "row", "cell"), CASES)
def test_each_setting_under_refuse(provider: str, row: Row, cell: Cell) -> None:
    """Plan and complete agree, and nothing is sent when something is refused."""
    transport = Scripted(chat_reply("x"))
    router = router_of(transport, adaptations="refuse")
    request = request_of(provider, row)
    if cell.action in (None, "satisfied"):
        assert [item.action for item in router.plan(request)] == [
            item[1] for item in expected_records(provider, row, cell)
        ]
    else:
        for act in (router.plan, router.complete, router.stream):
            with pytest.raises(UnsupportedFeatureError) as caught:
                act(request)
            assert caught.value.feature == f"config.{row.setting}"
    assert transport.num_sent == 0


@pytest.mark.parametrize(("provider", "row", "cell"), CASES)
def test_silent_sends_the_same(provider: str, row: Row, cell: Cell) -> None:
    if cell.action == "refused":
        with pytest.raises(UnsupportedFeatureError):
            call_of(request_of(provider, row), "silent")
        return
    silent, noted = (call_of(request_of(provider, row), policy) for policy in ("silent", "note"))
    told = {"adaptations": "silent"} if provider == "flm" else {}
    assert silent.body == {**noted.body, **told}
    # The plan has the record under every policy.
    assert silent.records == noted.records


# --- all together ------------------------------------------------------------------------------

EVERYTHING = Config(
    temperature=1.5,
    top_p=0.97,
    top_k=40,
    min_p=0.1,
    stop=("END",),
    seed=42,
    frequency_penalty=0.5,
    presence_penalty=-0.5,
    repetition_penalty=1.1,
    repeat_last_n=32,
    logprobs=2,
    tool_choice=ToolChoice(allowed=("look", "feel"), parallel=False),
    reasoning=Reasoning(effort="minimal", thinking_budget=3000, summary="concise"),
    think=True,
    cache=CacheConfig(key="k", retention="long", prefix_until_index=0),
    service_tier="flex",
    user_id="u1",
    store=False,
    probabilities="if_available",
)
LOCAL = ["min_p dropped", "repetition_penalty dropped", "repeat_last_n dropped"]
RESPONSES_ORDER = [
    "cache.prefix_until_index dropped",
    "stop client_side",
    "top_k dropped",
    *LOCAL,
    "seed dropped",
    "frequency_penalty dropped",
    "presence_penalty dropped",
    "probabilities dropped",
    "think dropped",
    "reasoning.thinking_budget dropped",
]
CHAT_START = ["probabilities dropped", "cache.prefix_until_index dropped"]
ORDERS = {
    "anthropic": [
        "cache.key dropped",
        "reasoning.summary substituted",
        "max_tokens defaulted",
        "temperature dropped",
        "top_k dropped",
        *LOCAL,
        "seed dropped",
        "frequency_penalty dropped",
        "presence_penalty dropped",
        "tool_choice.allowed client_side",
        "probabilities dropped",
        "store satisfied",
        "logprobs dropped",
        "think dropped",
    ],
    "openai": RESPONSES_ORDER,
    "openai-chat": [
        *CHAT_START,
        "top_k dropped",
        *LOCAL,
        "think dropped",
        "reasoning.thinking_budget dropped",
        "reasoning.summary substituted",
    ],
    "gemini": [
        "cache.key dropped",
        "cache.retention dropped",
        "cache.prefix_until_index dropped",
        "probabilities dropped",
        "reasoning.summary substituted",
        *LOCAL,
        "tool_choice.parallel dropped",
        "user_id dropped",
        "think dropped",
    ],
    "openai-codex": RESPONSES_ORDER,
    "vllm": [
        *CHAT_START,
        "repeat_last_n dropped",
        "tool_choice.allowed client_side",
        "reasoning.thinking_budget dropped",
        "reasoning.summary substituted",
        "reasoning.effort clamped",
        "cache.key dropped",
        "cache.retention dropped",
    ],
    "ollama": [
        *CHAT_START,
        "top_k dropped",
        *LOCAL,
        "tool_choice.allowed client_side",
        "think dropped",
        "reasoning.thinking_budget dropped",
        "reasoning.summary substituted",
        "reasoning.effort clamped",
        "cache.key dropped",
        "cache.retention dropped",
    ],
    "flm": [
        *CHAT_START,
        "presence_penalty clamped",
        "service_tier dropped",
        "reasoning.thinking_budget dropped",
        "reasoning.summary substituted",
        "reasoning.effort substituted",
        "cache.retention dropped",
    ],
}


@pytest.mark.parametrize("provider", MODELS)
def test_all_together_in_order(provider: str) -> None:
    model = f"{provider}:{MODELS[provider]}"
    request = Request(model=model, messages=[Message.user("hi")], tools=TOOLBOX, config=EVERYTHING)
    call = call_of(request)
    told = [f"{item.field.removeprefix('config.')} {item.action}" for item in call.records]
    assert told == ORDERS[provider]
    first = next((item for item in told if not item.endswith(("defaulted", "satisfied"))), None)
    with pytest.raises(UnsupportedFeatureError) as caught:
        call_of(request, "refuse")
    assert first is not None
    assert caught.value.feature == f"config.{first.split()[0]}"


@pytest.mark.parametrize("provider", MODELS)
def test_all_together_on_the_wire(provider: str) -> None:
    """Whatever was not adapted is on the wire as it is alone."""
    model = f"{provider}:{MODELS[provider]}"
    request = Request(model=model, messages=[Message.user("hi")], tools=TOOLBOX, config=EVERYTHING)
    assert call_of(request).body == WIRES[provider]


def test_the_default_policy_is_note() -> None:
    assert RouterConfig().adaptations == "note"
    with pytest.raises(ValueError, match="note, silent, refuse"):
        RouterConfig(adaptations="adapt")  # type: ignore[arg-type]
