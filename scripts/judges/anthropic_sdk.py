"""The Anthropic SDK: messages, its helpers for streams, schemas and tools, counts, models."""

import inspect
import json
import sys
from collections.abc import Callable
from typing import Any

import anthropic
from anthropic import beta_tool
from anthropic.types import MessageParam, ToolParam
from judgelib.checks import REQUEST_TIMEOUT_S, Server, documented, main
from pydantic import BaseModel, Field

QUESTION: list[MessageParam] = [{"role": "user", "content": "Name the capital of France."}]
WEATHER: list[MessageParam] = [
    {"role": "user", "content": "What is the weather in Paris? Give degrees in celsius."}
]
GET_WEATHER: ToolParam = {
    "name": "get_weather",
    "description": "Look the weather up.",
    "input_schema": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 40},
            "unit": {"enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
}


class City(BaseModel):
    """A city, with a list and an optional value."""

    name: str = Field(max_length=40)
    country: str = Field(max_length=40)
    is_capital: bool
    nickname: str | None


# A value for every parameter of the SDK. Those that are read or have no effect are not recorded.
READ: dict[str, Any] = {
    "cache_control": {"type": "ephemeral"},
    "max_tokens": 4,
    "metadata": {"user_id": "someone"},
    "service_tier": "auto",
    "stop_sequences": ["no such text"],
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "tool_choice": {"type": "none"},
    "tools": [{**GET_WEATHER, "cache_control": {"type": "ephemeral"}}],
    "user_profile_id": "someone",
    "workspace_id": "somewhere",
}
UNREAD: dict[str, Any] = {
    "container": "container",
    "diagnostics": {"previous_message_id": "msg_1"},
    "inference_geo": "us",
    "speed": "fast",
}
READ_ELSEWHERE = {"messages", "model", "stream", "timeout"}


def connect(server: Server) -> anthropic.Anthropic:
    """A client that tries once."""
    return anthropic.Anthropic(
        base_url=server.url.removesuffix("/v1"),
        api_key=server.api_key,
        max_retries=0,
        timeout=REQUEST_TIMEOUT_S,
    )


def require_known_shape(reply: BaseModel) -> None:
    """The reply satisfies the SDK's own types, which by itself the SDK does not check."""
    type(reply).model_validate(reply.model_dump(warnings=False), strict=True)


def text_of(message: Any) -> str:
    """The text of all blocks."""
    return "".join(block.text for block in message.content if block.type == "text")


def total_input(message: Any) -> int:
    """Tokens of the prompt, those in the cache included."""
    cached = message.usage.cache_read_input_tokens or 0
    return int(message.usage.input_tokens + cached)


def greedy(**fields: Any) -> dict[str, Any]:
    """Fields of a request whose reply is always the same."""
    return {"max_tokens": 64, "extra_body": {"temperature": 0}, **fields}


def whole_message(server: Server) -> None:
    """A whole message satisfies the SDK's types strictly."""
    with connect(server) as client:
        message = client.messages.create(model=server.model, messages=QUESTION, **greedy())
    require_known_shape(message)
    assert text_of(message)
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert message._request_id == message.id


def stream(server: Server) -> None:
    """The streaming helper gives the text of the whole message, and adds up to it."""
    wish = greedy(model=server.model, messages=QUESTION, system="Answer in one sentence.")
    with connect(server) as client:
        told = client.messages.create(**wish)
        with client.messages.stream(**wish) as events:
            text = "".join(events.text_stream)
            final = events.get_final_message()
        raw = list(client.messages.create(**wish, stream=True))
    assert text == text_of(told) == text_of(final)
    assert told.usage.output_tokens == final.usage.output_tokens
    assert told.stop_reason == final.stop_reason
    # It finds in the cache what the first one left there.
    assert total_input(told) == total_input(final)
    for event in raw:
        require_known_shape(event)
    assert [raw[0].type, raw[-2].type, raw[-1].type] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]


def parsed(server: Server) -> None:
    """messages.parse gives an instance of a pydantic model."""
    with connect(server) as client:
        reply = client.messages.parse(
            model=server.model,
            messages=[{"role": "user", "content": "Tell me about Paris, as JSON."}],
            output_format=City,
            **greedy(max_tokens=300),
        )
    assert isinstance(reply.parsed_output, City), reply


def streamed_parsed(server: Server) -> None:
    """messages.stream with an output format gives one too."""
    with (
        connect(server) as client,
        client.messages.stream(
            model=server.model,
            messages=[{"role": "user", "content": "Tell me about Paris, as JSON."}],
            output_format=City,
            **greedy(max_tokens=300),
        ) as events,
    ):
        final = events.get_final_message()
    assert isinstance(final.parsed_output, City), final


def streamed_tool(server: Server) -> None:
    """A forced call streams its input, which adds up to an object of the schema."""
    with (
        connect(server) as client,
        client.messages.stream(
            model=server.model,
            messages=WEATHER,
            tools=[GET_WEATHER],
            tool_choice={"type": "tool", "name": "get_weather"},
            **greedy(max_tokens=200),
        ) as events,
    ):
        kinds = [event.type for event in events]
        final = events.get_final_message()
    assert kinds.count("input_json") > 1, kinds
    (call,) = final.content
    assert call.type == "tool_use"
    assert set(call.input) == {"city", "unit"}, call
    assert final.stop_reason == "tool_use"


def round_trip(server: Server) -> None:
    """A forced call, its result sent back, an answer in words."""
    wish = greedy(model=server.model, tools=[GET_WEATHER], max_tokens=200)
    with connect(server) as client:
        asked = client.messages.create(**wish, messages=WEATHER, tool_choice={"type": "any"})
        require_known_shape(asked)
        calls = [block for block in asked.content if block.type == "tool_use"]
        assert calls
        results: list[Any] = [
            {
                "type": "tool_result",
                "tool_use_id": call.id,
                "content": [{"type": "text", "text": json.dumps({"degrees": 21})}],
            }
            for call in calls
        ]
        # The blocks themselves go back, as the SDK's documentation does it.
        history: list[MessageParam] = [
            *WEATHER,
            {"role": "assistant", "content": asked.content},
            {"role": "user", "content": results},
        ]
        answer = client.messages.create(**wish, messages=history, tool_choice={"type": "none"})
    assert text_of(answer)
    assert not (answer.model_extra or {}).get("adaptations"), answer.model_extra


def tool_runner(server: Server) -> None:
    """The tool runner calls a Python function and goes on with what it returned."""
    asked: list[str] = []

    def get_time(city: str) -> str:
        """Tell the time in a city.

        Args:
            city: The city's name.
        """
        asked.append(city)
        return "It is noon."

    with connect(server) as client:
        runner = client.beta.messages.tool_runner(
            model=server.model,
            messages=[{"role": "user", "content": "What time is it in Paris?"}],
            tools=[beta_tool(get_time)],
            tool_choice={"type": "any"},
            max_iterations=2,
            **greedy(max_tokens=100),
        )
        messages = list(runner)
    assert asked, messages
    assert len(messages) == 2, messages


def count(server: Server) -> None:
    """count_tokens tells the input tokens of the same message."""
    wish: dict[str, Any] = {
        "model": server.model,
        "messages": WEATHER,
        "system": "Be brief.",
        "tools": [GET_WEATHER],
    }
    with connect(server) as client:
        told = client.messages.count_tokens(**wish)
        message = client.messages.create(**wish, **greedy(max_tokens=1))
    require_known_shape(told)
    assert told.input_tokens == total_input(message)


def models(server: Server) -> None:
    """models.list and models.retrieve give models of the SDK's own type."""
    with connect(server) as client:
        listed = list(client.models.list())
        one = client.models.retrieve(server.model)
    assert server.model in [model.id for model in listed]
    assert one.max_input_tokens
    for model in (*listed, one):
        type(model).model_validate_json(model.model_dump_json(warnings=False))


def failure(ask: Callable[..., Any], **fields: Any) -> anthropic.APIStatusError:
    """The error that a request ends with."""
    try:
        ask(max_tokens=1, **fields)
    except anthropic.APIStatusError as error:
        return error
    raise AssertionError("it was answered")


def errors(server: Server) -> None:
    """Errors become the SDK's own classes, with their type and the id of the request."""
    long: list[MessageParam] = [{"role": "user", "content": "a b " * 20000}]
    with connect(server) as client:
        unknown = failure(client.messages.create, model="no-such-model", messages=QUESTION)
        too_long = failure(client.messages.create, model=server.model, messages=long)
    assert isinstance(unknown, anthropic.NotFoundError), unknown
    assert unknown.type == "not_found_error", unknown.type
    assert unknown.request_id, unknown
    assert isinstance(too_long, anthropic.BadRequestError), too_long
    assert "prompt is too long" in too_long.message, too_long.message


def every_parameter(server: Server) -> None:
    """Each parameter that the SDK knows is read or recorded, never an error."""
    with connect(server) as client:
        known = set(inspect.signature(client.messages.create).parameters)
        # Read, but this model does not reason.
        thinking: dict[str, Any] = {
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "output_config": {"effort": "low"},
        }
        named = {*READ, *UNREAD, *thinking, *READ_ELSEWHERE}
        named |= {"extra_body", "extra_headers", "extra_query"}
        assert known <= named, f"what does the server do with {known - named}?"
        reply = client.messages.create(
            model=server.model, messages=QUESTION, **READ, **UNREAD, **thinking
        )
    require_known_shape(reply)
    told = {entry["field"] for entry in (reply.model_extra or {})["adaptations"]}
    wanted = {*UNREAD, "thinking", "thinking.budget_tokens", "output_config.effort"}
    assert told == wanted, told ^ wanted


if __name__ == "__main__":
    sys.exit(
        main(
            whole_message,
            stream,
            parsed,
            streamed_parsed,
            streamed_tool,
            round_trip,
            tool_runner,
            count,
            models,
            errors,
            every_parameter,
            documented("Anthropic SDK"),
        )
    )
