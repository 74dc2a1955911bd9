"""The OpenAI SDK on the Responses API: whole, streamed, parsed, kept, and gone on from."""

import inspect
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import openai
from judgelib.checks import REQUEST_TIMEOUT_S, Server, documented, main
from openai.types.responses import Response
from pydantic import BaseModel, Field

QUESTION = "Name the capital of France."
WEATHER = "What is the weather in Paris? Give degrees in celsius."


class GetWeather(BaseModel):
    """Look the weather up."""

    city: str = Field(max_length=40, description="The city's name.")
    days: int = Field(ge=1, le=7)


class City(BaseModel):
    """A city, with a list and an optional value."""

    name: str = Field(max_length=40)
    sights: list[str] = Field(max_length=3)
    is_capital: bool
    nickname: str | None


# A value for every parameter of the SDK. Those that are read or have no effect are not recorded.
READ: dict[str, Any] = {
    "include": ["message.output_text.logprobs"],
    "instructions": "Answer in one word.",
    "max_output_tokens": 4,
    "max_tool_calls": 2,
    "metadata": {"a": "b"},
    "parallel_tool_calls": True,
    "prompt_cache_key": "key",
    "safety_identifier": "someone",
    "store": True,
    "temperature": 0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "none",
    "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": False}],
    "top_logprobs": 1,
    "top_p": 0.9,
    "user": "someone",
}
UNREAD: dict[str, Any] = {
    "background": True,
    "context_management": [{"type": "compaction"}],
    "moderation": {"model": "omni-moderation-latest"},
    "prompt_cache_options": {"ttl": "30m"},
    "prompt_cache_retention": "24h",
    "service_tier": "flex",
    "truncation": "auto",
}
# They ask for what only OpenAI keeps: without it there is nothing to answer.
REFUSED: dict[str, Any] = {"conversation": "conv_1", "prompt": {"id": "pmpt_1"}}
READ_ELSEWHERE = {
    "input",
    "model",
    "previous_response_id",
    "reasoning",
    "stream",
    "stream_options",
    "timeout",
}
# Of no use to a model that runs here; anything may be sent in them.
ELSEWHERE = {"access_programs", "background_options", "image"}


def connect(server: Server) -> openai.OpenAI:
    """A client that tries once."""
    return openai.OpenAI(
        base_url=server.url, api_key=server.api_key, max_retries=0, timeout=REQUEST_TIMEOUT_S
    )


def require_known_shape(reply: Any) -> None:
    """The reply satisfies the SDK's own types, which by itself the SDK does not check."""
    Response.model_validate(reply.model_dump(by_alias=True, warnings=False), strict=True)


def refusal_of(ask: Callable[[], object]) -> openai.APIStatusError:
    """What the server refuses a request with."""
    try:
        ask()
    except openai.APIStatusError as error:
        return error
    raise AssertionError("it was accepted")


def whole_response(server: Server) -> None:
    """A whole response satisfies the SDK's types strictly and says what a chat says."""
    with connect(server) as client:
        reply = client.responses.create(
            model=server.model, input=QUESTION, temperature=0, max_output_tokens=32, top_logprobs=2
        )
        chat = client.chat.completions.create(
            model=server.model,
            messages=[{"role": "user", "content": QUESTION}],
            temperature=0,
            max_tokens=32,
        )
    require_known_shape(reply)
    assert reply.output_text == chat.choices[0].message.content


def stream(server: Server) -> None:
    """A stream gives the text of the whole response, in events of the SDK's types."""
    wish: dict[str, Any] = {"model": server.model, "input": QUESTION, "temperature": 0}
    with connect(server) as client:
        told = client.responses.create(**wish, max_output_tokens=32)
        events = list(client.responses.create(**wish, max_output_tokens=32, stream=True))
    for event in events:
        type(event).model_validate(event.model_dump(warnings=False), strict=True)
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == told.output_text == events[-1].response.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))


def parsed(server: Server) -> None:
    """responses.parse gives an instance of a pydantic model."""
    with connect(server) as client:
        reply = client.responses.parse(
            model=server.model,
            input="Tell me about Paris, as JSON.",
            text_format=City,
            temperature=0,
            max_output_tokens=400,
        )
    require_known_shape(reply)
    assert isinstance(reply.output_parsed, City)


def stream_helper(server: Server) -> None:
    """responses.stream gathers events, snapshots and the parsed model."""
    with (
        connect(server) as client,
        client.responses.stream(
            model=server.model,
            input="Tell me about Paris, as JSON.",
            text_format=City,
            temperature=0,
            max_output_tokens=400,
        ) as events,
    ):
        kinds = {event.type for event in events}
        final = events.get_final_response()
    assert {"response.created", "response.output_text.done", "response.completed"} <= kinds
    assert isinstance(final.output_parsed, City)
    assert final.usage is not None


def round_trip(server: Server) -> None:
    """A strict tool that is required gives parsed arguments; its result is answered in words."""
    tools: list[Any] = [openai.pydantic_function_tool(GetWeather, name="get_weather")]
    flat = [{"type": "function", **tool["function"]} for tool in tools]
    wish: dict[str, Any] = {"model": server.model, "tools": flat, "temperature": 0}
    with connect(server) as client:
        with client.responses.stream(
            **wish, input=WEATHER, tool_choice="required", max_tool_calls=1, max_output_tokens=200
        ) as events:
            kinds = [event.type for event in events]
            asked = events.get_final_response()
        assert "response.function_call_arguments.delta" in kinds
        assert "response.function_call_arguments.done" in kinds
        (call,) = asked.output
        assert call.type == "function_call"
        GetWeather.model_validate_json(call.arguments)
        result: Any = {
            "type": "function_call_output",
            "call_id": call.call_id,
            "output": json.dumps({"degrees": 21, "sky": "clear"}),
        }
        answer = client.responses.create(
            **wish,
            input=[result],
            previous_response_id=asked.id,
            tool_choice="none",
            max_output_tokens=64,
        )
    require_known_shape(answer)
    assert answer.output_text


def kept(server: Server) -> None:
    """Retrieve, input_items, previous_response_id and delete work on what the server keeps."""
    wish: dict[str, Any] = {"model": server.model, "temperature": 0, "max_output_tokens": 32}
    with connect(server) as client:
        first = client.responses.create(**wish, input=QUESTION)
        assert client.responses.retrieve(first.id).output_text == first.output_text
        second = client.responses.create(
            **wish, input="And of Spain?", previous_response_id=first.id
        )
        history: list[Any] = [{"role": "user", "content": QUESTION}, *first.output]
        sent = client.responses.create(
            **wish, input=[*history, {"role": "user", "content": "And of Spain?"}]
        )
        assert second.output_text == sent.output_text
        assert second.usage is not None
        assert second.usage.input_tokens_details.cached_tokens > 0
        items = list(client.responses.input_items.list(second.id, order="asc", limit=2))
        assert [item.type for item in items] == ["message"] * 3
        client.responses.delete(first.id)
        gone = refusal_of(lambda: client.responses.retrieve(first.id))
        assert (gone.status_code, gone.code) == (404, "not_found")
        wish["previous_response_id"] = first.id
        lost = refusal_of(lambda: client.responses.create(**wish, input="x"))
        assert (lost.status_code, lost.code) == (400, "previous_response_not_found")


def every_parameter(server: Server) -> None:
    """Each parameter that the SDK knows is read, recorded or refused by name."""
    with connect(server) as client:
        known = set(inspect.signature(client.responses.create).parameters)
        named = {*READ, *UNREAD, *REFUSED, *READ_ELSEWHERE, *ELSEWHERE}
        named |= {"extra_body", "extra_headers", "extra_query"}
        assert known <= named, f"what does the server do with {known - named}?"
        reply = client.responses.create(model=server.model, input=QUESTION, **READ, **UNREAD)
        require_known_shape(reply)
        told = {entry["field"] for entry in (reply.model_extra or {})["adaptations"]}
        assert told == set(UNREAD), told ^ set(UNREAD)
        for name, value in REFUSED.items():
            ask = partial(client.responses.create, model=server.model, input=QUESTION)
            refusal = refusal_of(partial(ask, extra_body={name: value}))
            assert (refusal.status_code, refusal.param) == (400, name)


if __name__ == "__main__":
    sys.exit(
        main(
            whole_response,
            stream,
            parsed,
            stream_helper,
            round_trip,
            kept,
            every_parameter,
            documented("OpenAI SDK, Responses API"),
        )
    )
