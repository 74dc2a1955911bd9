"""Requests are frozen and checked when they are made."""

import dataclasses
from typing import Any

import pytest

from flm.router import (
    AudioPart,
    BuiltinTool,
    CacheConfig,
    CitationPart,
    Config,
    ImagePart,
    LMRouter,
    Message,
    Reasoning,
    RefusalPart,
    Request,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolResultPart,
)

HI = [Message.user("hi")]


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"max_tokens": 0}, ValueError),
        ({"max_tokens": 1.5}, TypeError),
        ({"max_tokens": True}, TypeError),
        ({"temperature": 2.1}, ValueError),
        ({"temperature": -0.1}, ValueError),
        ({"temperature": float("nan")}, ValueError),
        ({"temperature": "1"}, TypeError),
        ({"temperature": True}, TypeError),
        ({"top_p": 1.1}, ValueError),
        ({"min_p": -1}, ValueError),
        ({"top_k": 0}, ValueError),
        ({"seed": 1.0}, TypeError),
        ({"seed": True}, TypeError),
        ({"stop": [""]}, ValueError),
        ({"stop": [1]}, TypeError),
        ({"stop": {"a": 1}}, TypeError),
        ({"frequency_penalty": 2.5}, ValueError),
        ({"presence_penalty": -2.5}, ValueError),
        ({"repetition_penalty": 0}, ValueError),
        ({"repeat_last_n": -2}, ValueError),
        ({"logprobs": -1}, ValueError),
        ({"think": 1}, TypeError),
        ({"store": "no"}, TypeError),
        ({"user_id": ""}, ValueError),
        ({"response_format": {"type": "text"}}, ValueError),
        ({"response_format": {"type": "json_object", "schema": {}}}, ValueError),
        ({"response_format": {"type": "json_schema"}}, ValueError),
        ({"response_format": "json"}, TypeError),
        ({"tool_choice": "auto"}, TypeError),
        ({"reasoning": "low"}, TypeError),
        ({"cache": True}, TypeError),
        ({"probabilities": "yes"}, ValueError),
        ({"extensions": {"x": object()}}, ValueError),
        ({"extensions": {"stream": True}}, ValueError),
        ({"extensions": []}, TypeError),
    ],
)
def test_a_value_that_no_provider_could_take(
    settings: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=next(iter(settings))):
        Config(**settings)


def test_values_are_kept_in_one_form() -> None:
    config = Config(max_tokens=20.0, temperature=1, stop="END", extensions={})  # type: ignore[arg-type]
    assert (config.max_tokens, config.stop, config.extensions) == (20, ("END",), None)
    assert type(config.max_tokens) is int
    assert type(config.temperature) is float
    assert Config(seed=-5).seed == -5
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 1  # type: ignore[misc]


def test_what_a_caller_changes_later_changes_no_request() -> None:
    schema = {"type": "object"}
    config = Config(response_format={"type": "json_schema", "schema": schema})
    tool = Tool("look", parameters=schema)
    schema["type"] = "array"
    assert config.response_format == {"type": "json_schema", "schema": {"type": "object"}}
    assert tool.parameters == {"type": "object"}


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: Request(model="", messages=HI), ValueError),
        (lambda: Request(model="m", messages=[]), ValueError),
        (lambda: Request(model="m", messages=["hi"]), TypeError),
        (lambda: Request(model="m", messages="hi"), TypeError),
        (lambda: Request(model="m", messages=HI, system=""), ValueError),
        (lambda: Request(model="m", messages=HI, system=[ImagePart(url="http://x")]), TypeError),
        (lambda: Request(model="m", messages=HI, tools=[print]), TypeError),
        (lambda: Request(model="m", messages=HI, tools=[Tool("a"), BuiltinTool("a")]), ValueError),
        (lambda: Request(model="m", messages=HI, config={}), TypeError),
        (
            lambda: Request(
                model="m", messages=HI, config=Config(tool_choice=ToolChoice(allowed=["a"]))
            ),
            ValueError,
        ),
        (
            lambda: Request(model="m", messages=HI, config=Config(continue_final_message=True)),
            ValueError,
        ),
        (lambda: Message("system", "x"), ValueError),
        (lambda: Message.user([]), ValueError),
        (lambda: Message.user(3), TypeError),
        (lambda: Message.user(ThinkingPart("x")), ValueError),
        (lambda: Message.user(ToolCallPart("1", "a", {})), ValueError),
        (lambda: Message.assistant(ToolResultPart("1", "x")), ValueError),
        (lambda: Message("tool", "x"), ValueError),
        (lambda: Message.developer(RefusalPart("no")), ValueError),
        (lambda: ToolChoice("none", parallel=True), ValueError),
        (lambda: ToolChoice("never"), ValueError),
        (lambda: Reasoning(), ValueError),
        (lambda: Reasoning(effort="off", summary="auto"), ValueError),
        (lambda: Reasoning(effort="huge"), ValueError),
        (lambda: CacheConfig(prefix="stable", prefix_until_index=1), ValueError),
        (lambda: CacheConfig(mode="off", key="k"), ValueError),
        (lambda: ImagePart(), ValueError),
        (lambda: ImagePart(url="http://x", data="AA"), ValueError),
        (lambda: ImagePart(url="http://x", detail="big"), ValueError),
        (lambda: CitationPart(), ValueError),
        (lambda: RefusalPart(""), ValueError),
        (lambda: ToolCallPart("1", "", {}), ValueError),
        (lambda: Tool(""), ValueError),
    ],
)
def test_what_makes_no_request(make: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        make()


@pytest.mark.parametrize("model", ["claude-haiku-4-5", "gpt-4.1", "gemini-2.5-flash", "flm:m"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"messages": [Message.user("caf\udce9")]},
        {"system": "caf\udce9"},
        {"config": Config(extensions={"a": ["b", {"caf\udce9": 1}]})},
    ],
)
def test_half_a_character_is_sent_to_nobody(model: str, wrong: dict[str, Any]) -> None:
    request = Request(**{"model": model, "messages": HI, **wrong})
    with pytest.raises(ValueError, match=r"lone surrogate '\\udce9' at index 3"):
        LMRouter().plan(request)


def test_half_a_character_in_the_name_of_a_model() -> None:
    for provider in ("flm", "gemini", "anthropic"):
        with pytest.raises(ValueError, match="model holds the lone surrogate"):
            LMRouter().plan(Request(model=f"{provider}:m\udce9", messages=HI))


def test_one_stands_for_a_list_of_one() -> None:
    request = Request(model="m", messages=HI[0], tools=Tool("a"))  # type: ignore[arg-type]
    assert request.messages == tuple(HI)
    assert request.tools == (Tool("a"),)
    assert Message.user("x").parts == (TextPart("x"),)
    assert Message.user(["a", "b"]).text == "a\nb"
    assert Message.user(["a", AudioPart(data="AA")]).text is None
    assert Message.tool({"1": "x", "2": "y"}) == Message(
        "tool", (ToolResultPart("1", "x"), ToolResultPart("2", "y"))
    )
    assert Message.tool("1", "bad", is_error=True).parts[0].is_error  # type: ignore[union-attr]
    assert AudioPart(data="AA").media_type == "audio/wav"
    assert ImagePart(data=b"ab").data == "YWI="  # type: ignore[arg-type]
