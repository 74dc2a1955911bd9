"""langchain-openai: bound tools, structured output in its three methods, streams, a round trip."""

import sys
from typing import Any

from judgelib.checks import REQUEST_TIMEOUT_S, Server, documented, main
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

QUESTION = [HumanMessage("Name the capital of France.")]
WEATHER = [HumanMessage("What is the weather in Paris?")]


class WeatherWish(BaseModel):
    """Where, and in which unit."""

    city: str = Field(max_length=40)
    days: int = Field(ge=1, le=7)


class Review(BaseModel):
    """A judgement of a film, with a nested part."""

    title: str = Field(max_length=60)
    score: int = Field(ge=1, le=5)
    author: "Author"


class Author(BaseModel):
    """Who wrote it."""

    name: str = Field(max_length=40)


Review.model_rebuild()


def get_weather(city: str, days: int) -> str:
    """Look the weather up."""
    return f"Sunny in {city}, 21 degrees, for {days} days."


WEATHER_TOOL = StructuredTool.from_function(get_weather, args_schema=WeatherWish)


def connect(server: Server, **options: Any) -> Any:
    """A chat model that tries once."""
    return ChatOpenAI(
        model=server.model,
        base_url=server.url,
        api_key=server.api_key,
        temperature=0,
        max_retries=0,
        timeout=REQUEST_TIMEOUT_S,
        **{"max_tokens": 200, **options},
    )


def invoke(server: Server) -> None:
    """invoke gives an answer with its counts and its finish reason."""
    answer = connect(server).invoke(QUESTION)
    assert "Paris" in answer.content
    assert answer.usage_metadata["output_tokens"] > 0
    assert answer.response_metadata["finish_reason"] == "stop"


def stream(server: Server) -> None:
    """stream gives the text of invoke, with its counts."""
    model = connect(server, stream_usage=True)
    chunks = list(model.stream(QUESTION))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.content == model.invoke(QUESTION).content
    assert whole.usage_metadata["output_tokens"] > 0
    assert len(chunks) > 3


def any_tool(server: Server) -> None:
    """bind_tools with tool_choice any gives a call with valid arguments."""
    model = connect(server).bind_tools([WEATHER_TOOL], tool_choice="any")
    reply = model.invoke(WEATHER)
    assert not reply.invalid_tool_calls
    assert reply.tool_calls
    for call in reply.tool_calls:
        assert call["name"] == "get_weather"
        WeatherWish.model_validate(call["args"])


def named_strict_tool(server: Server) -> None:
    """bind_tools with a name and strict gives one call, in a stream too."""
    model = connect(server).bind_tools([WEATHER_TOOL], tool_choice="get_weather", strict=True)
    for reply in (model.invoke(WEATHER), _gathered(model.stream(WEATHER))):
        assert not reply.invalid_tool_calls
        (call,) = reply.tool_calls
        WeatherWish.model_validate(call["args"])


def _gathered(chunks: Any) -> Any:
    whole = next(chunks)
    for chunk in chunks:
        whole += chunk
    return whole


def structured_by_schema(server: Server) -> None:
    """with_structured_output by json_schema gives a nested model."""
    model = connect(server).with_structured_output(Review, method="json_schema", strict=True)
    assert isinstance(model.invoke("Judge the film Alien."), Review)


def structured_by_function(server: Server) -> None:
    """with_structured_output by function_calling gives a nested model."""
    model = connect(server).with_structured_output(Review, method="function_calling")
    assert isinstance(model.invoke("Judge the film Alien."), Review)


def structured_by_json_mode(server: Server) -> None:
    """with_structured_output by json_mode gives a whole JSON object."""
    model = connect(server).with_structured_output(None, method="json_mode")
    answer = model.invoke('Name the capital of France. Reply as JSON: {"capital": ...}')
    assert isinstance(answer, dict)


def round_trip(server: Server) -> None:
    """A forced call is executed, its ToolMessage sent back, an answer in words comes."""
    reply = connect(server).bind_tools([WEATHER_TOOL], tool_choice="any").invoke(WEATHER)
    results = [WEATHER_TOOL.invoke(call) for call in reply.tool_calls]
    assert results
    assert all(isinstance(result, ToolMessage) for result in results)
    model = connect(server, max_tokens=64).bind_tools([WEATHER_TOOL], tool_choice="none")
    answer = model.invoke([*WEATHER, reply, *results])
    assert answer.content
    assert not answer.tool_calls


if __name__ == "__main__":
    sys.exit(
        main(
            invoke,
            stream,
            any_tool,
            named_strict_tool,
            structured_by_schema,
            structured_by_function,
            structured_by_json_mode,
            round_trip,
            documented("LangChain"),
        )
    )
