"""The OpenAI SDK: whole and streamed replies, its helpers for schemas and tools, a round trip."""

import inspect
import json
import sys
from enum import StrEnum
from typing import Any

import openai
from judgelib.checks import REQUEST_TIMEOUT_S, Server, documented, main
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam
from pydantic import BaseModel, Field

QUESTION: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": "Name the capital of France."}
]
WEATHER: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": "What is the weather in Paris? Give degrees in celsius."}
]


class Unit(StrEnum):
    """Scales of temperature."""

    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


class GetWeather(BaseModel):
    """Look the weather up."""

    city: str = Field(max_length=40, description="The city's name.")
    unit: Unit
    days: int = Field(ge=1, le=7)


class Place(BaseModel):
    """Where something lies."""

    country: str = Field(max_length=40)
    continent: str = Field(max_length=40)


class City(BaseModel):
    """A city, with a nested object, a list and an optional value."""

    name: str = Field(max_length=40)
    place: Place
    sights: list[str] = Field(max_length=3)
    is_capital: bool
    nickname: str | None


# A value for every parameter of the SDK. Those that are read or have no effect are not recorded.
READ: dict[str, Any] = {
    "frequency_penalty": 0.1,
    "logit_bias": {"5": 1},
    "logprobs": True,
    "max_completion_tokens": 4,
    "max_tokens": 4,
    "metadata": {"a": "b"},
    "n": 1,
    "parallel_tool_calls": True,
    "presence_penalty": 0.1,
    "prompt_cache_key": "key",
    "response_format": {"type": "text"},
    "safety_identifier": "someone",
    "seed": 1,
    "stop": ["no such text"],
    "temperature": 0,
    "tool_choice": "none",
    "tools": [openai.pydantic_function_tool(GetWeather)],
    "top_logprobs": 1,
    "top_p": 0.9,
    "user": "someone",
}
UNREAD: dict[str, Any] = {
    "audio": {"format": "wav", "voice": "alloy"},
    "function_call": "none",
    "functions": [{"name": "f"}],
    "modalities": ["text"],
    "moderation": {"model": "omni-moderation-latest"},
    "prediction": {"type": "content", "content": "Paris"},
    "prompt_cache_options": {"ttl": "30m"},
    "prompt_cache_retention": "24h",
    "reasoning_effort": "low",  # read, but this model does not reason
    "service_tier": "flex",
    "store": True,
    "verbosity": "low",
    "web_search_options": {},
}
READ_ELSEWHERE = {"messages", "model", "stream", "stream_options", "timeout"}


def connect(server: Server) -> openai.OpenAI:
    """A client that tries once."""
    return openai.OpenAI(
        base_url=server.url, api_key=server.api_key, max_retries=0, timeout=REQUEST_TIMEOUT_S
    )


def require_known_shape(reply: ChatCompletion) -> None:
    """The reply satisfies the SDK's own types, which by itself the SDK does not check."""
    ChatCompletion.model_validate(reply.model_dump(warnings=False), strict=True)


def whole_reply(server: Server) -> None:
    """A whole reply satisfies the SDK's types strictly."""
    with connect(server) as client:
        reply = client.chat.completions.create(
            model=server.model,
            messages=QUESTION,
            temperature=0,
            max_tokens=32,
            logprobs=True,
            top_logprobs=2,
        )
    require_known_shape(reply)
    assert "Paris" in (reply.choices[0].message.content or "")
    assert reply.choices[0].finish_reason == "stop"


def stream(server: Server) -> None:
    """A stream gives the text of the whole reply and ends with the counts."""
    wish: dict[str, Any] = {"model": server.model, "messages": QUESTION, "temperature": 0}
    with connect(server) as client:
        told = client.chat.completions.create(**wish, max_tokens=32)
        chunks = list(
            client.chat.completions.create(
                **wish, max_tokens=32, stream=True, stream_options={"include_usage": True}
            )
        )
    for chunk in chunks:
        type(chunk).model_validate(chunk.model_dump(warnings=False), strict=True)
    text = "".join(item.choices[0].delta.content or "" for item in chunks if item.choices)
    assert text == told.choices[0].message.content
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == told.usage.completion_tokens


def parsed(server: Server) -> None:
    """chat.completions.parse gives an instance of a nested pydantic model."""
    with connect(server) as client:
        reply = client.chat.completions.parse(
            model=server.model,
            messages=[{"role": "user", "content": "Tell me about Paris, as JSON."}],
            response_format=City,
            temperature=0,
            max_tokens=400,
        )
    require_known_shape(reply)
    assert isinstance(reply.choices[0].message.parsed, City)


def stream_helper(server: Server) -> None:
    """chat.completions.stream gathers events, snapshots and the parsed model."""
    with (
        connect(server) as client,
        client.chat.completions.stream(
            model=server.model,
            messages=[{"role": "user", "content": "Tell me about Paris, as JSON."}],
            response_format=City,
            temperature=0,
            max_tokens=400,
            stream_options={"include_usage": True},
        ) as events,
    ):
        kinds = {event.type for event in events}
        final = events.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds, kinds
    assert isinstance(final.choices[0].message.parsed, City)
    assert final.usage is not None


def tool(server: Server) -> None:
    """pydantic_function_tool (strict) with tool_choice required gives parsed arguments."""
    with connect(server) as client:
        reply = client.chat.completions.parse(
            model=server.model,
            messages=WEATHER,
            tools=[openai.pydantic_function_tool(GetWeather, name="get_weather")],
            tool_choice="required",
            temperature=0,
            max_tokens=200,
        )
    require_known_shape(reply)
    assert reply.choices[0].finish_reason == "tool_calls"
    calls = reply.choices[0].message.tool_calls
    assert calls
    assert all(isinstance(call.function.parsed_arguments, GetWeather) for call in calls)


def streamed_tool(server: Server) -> None:
    """The stream helper puts the arguments of a call together."""
    with (
        connect(server) as client,
        client.chat.completions.stream(
            model=server.model,
            messages=WEATHER,
            tools=[openai.pydantic_function_tool(GetWeather, name="get_weather")],
            tool_choice={"type": "function", "function": {"name": "get_weather"}},
            parallel_tool_calls=False,
            temperature=0,
            max_tokens=200,
        ) as events,
    ):
        kinds = [event.type for event in events]
        final = events.get_final_completion()
    assert "tool_calls.function.arguments.delta" in kinds
    assert "tool_calls.function.arguments.done" in kinds
    (call,) = final.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, GetWeather)
    assert final.choices[0].finish_reason == "tool_calls"


def round_trip(server: Server) -> None:
    """A forced call, its result sent back, an answer in words."""
    tools: list[Any] = [openai.pydantic_function_tool(GetWeather, name="get_weather")]
    wish: dict[str, Any] = {"model": server.model, "tools": tools, "temperature": 0}
    with connect(server) as client:
        asked = client.chat.completions.create(
            **wish, messages=WEATHER, tool_choice="required", max_tokens=200
        )
        message = asked.choices[0].message
        results: list[ChatCompletionMessageParam] = []
        for call in message.tool_calls or []:
            assert call.type == "function"
            GetWeather.model_validate_json(call.function.arguments)
            result = json.dumps({"degrees": 21, "sky": "clear"})
            results.append({"role": "tool", "tool_call_id": call.id, "content": result})
        assert results
        # The message object itself goes back, as the SDK's documentation does it.
        history: list[Any] = [*WEATHER, message, *results]
        answer = client.chat.completions.create(
            **wish, messages=history, tool_choice="none", max_tokens=64
        )
    assert answer.choices[0].message.content
    assert answer.choices[0].message.tool_calls is None


def every_parameter(server: Server) -> None:
    """Each parameter that the SDK knows is read or recorded, never an error."""
    with connect(server) as client:
        known = set(inspect.signature(client.chat.completions.create).parameters)
        named = {*READ, *UNREAD, *READ_ELSEWHERE, "extra_body", "extra_headers", "extra_query"}
        assert known <= named, f"what does the server do with {known - named}?"
        reply = client.chat.completions.create(
            model=server.model, messages=QUESTION, **READ, **UNREAD
        )
    require_known_shape(reply)
    told = {entry["field"] for entry in (reply.model_extra or {})["adaptations"]}
    assert told == set(UNREAD), told ^ set(UNREAD)


if __name__ == "__main__":
    sys.exit(
        main(
            whole_reply,
            stream,
            parsed,
            stream_helper,
            tool,
            streamed_tool,
            round_trip,
            every_parameter,
            documented("OpenAI SDK"),
        )
    )
