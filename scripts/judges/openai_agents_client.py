"""openai-agents: a function tool that is called, its result sent back, and typed final output."""

import asyncio
import sys
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from judgelib.checks import REQUEST_TIMEOUT_S, Server, documented, main
from openai import AsyncOpenAI
from pydantic import BaseModel, Field

# Traces would go to a service outside.
set_tracing_disabled(disabled=True)


class Forecast(BaseModel):
    """What the agent ends with."""

    city: str = Field(max_length=40)
    degrees: int = Field(ge=-90, le=60)


def agent_of(server: Server, model: Any = OpenAIChatCompletionsModel, **options: Any) -> Any:
    """An agent on an API of OpenAI's; its client tries once."""
    client = AsyncOpenAI(
        base_url=server.url, api_key=server.api_key, max_retries=0, timeout=REQUEST_TIMEOUT_S
    )
    return Agent(name="Reporter", model=model(model=server.model, openai_client=client), **options)


def settings(**options: Any) -> Any:
    """Greedy, and short enough for a small machine."""
    return ModelSettings(temperature=0, max_tokens=120, include_usage=True, **options)


def text(server: Server) -> None:
    """An agent answers in words, with its counts."""
    agent = agent_of(server, model_settings=settings())
    result = Runner.run_sync(agent, "Name the capital of France.")
    assert "Paris" in result.final_output
    assert result.context_wrapper.usage.output_tokens > 0


def typed(server: Server) -> None:
    """output_type gives a pydantic model through a strict json_schema."""
    agent = agent_of(server, model_settings=settings(), output_type=Forecast)
    result = Runner.run_sync(agent, "What is the weather in Paris?")
    assert isinstance(result.final_output, Forecast)


def stopping_tool(server: Server) -> None:
    """A required call ends the run with the tool's own result."""
    tool, done = _weather()
    agent = agent_of(
        server,
        tools=[tool],
        tool_use_behavior="stop_on_first_tool",
        model_settings=settings(tool_choice="required"),
    )
    result = Runner.run_sync(agent, "What is the weather in Paris?")
    assert len(done) >= 1
    assert result.final_output == f"Sunny in {done[0]}."


def round_trip(server: Server) -> None:
    """A required call is executed and sent back; typed output ends the run."""
    _round_trip(server, OpenAIChatCompletionsModel)


def responses_round_trip(server: Server) -> None:
    """The same on the SDK's default, the Responses API."""
    _round_trip(server, OpenAIResponsesModel)


def _round_trip(server: Server, model: Any) -> None:
    tool, done = _weather()
    agent = agent_of(
        server,
        model,
        tools=[tool],
        output_type=Forecast,
        model_settings=settings(tool_choice="required", parallel_tool_calls=False),
    )
    result = Runner.run_sync(agent, "What is the weather in Paris?", max_turns=4)
    assert len(done) == 1
    assert isinstance(result.final_output, Forecast)


def streamed(server: Server) -> None:
    """The same round trip with a named tool, streamed."""
    _streamed(server, OpenAIChatCompletionsModel)


def responses_streamed(server: Server) -> None:
    """That on the Responses API too."""
    _streamed(server, OpenAIResponsesModel)


def responses_memory(server: Server) -> None:
    """A run goes on from the last response of another, which the server kept."""
    agent = agent_of(server, OpenAIResponsesModel, model_settings=settings())
    first = Runner.run_sync(agent, "My name is Ada. Say hello.")
    assert first.last_response_id is not None
    again = Runner.run_sync(agent, "What is my name?", previous_response_id=first.last_response_id)
    used = again.context_wrapper.usage
    # The first turn is in front of the second, and was read from the cache.
    assert used.input_tokens > first.context_wrapper.usage.total_tokens
    assert used.input_tokens_details.cached_tokens > 0


def _streamed(server: Server, model: Any) -> None:
    tool, done = _weather()
    agent = agent_of(
        server,
        model,
        tools=[tool],
        output_type=Forecast,
        model_settings=settings(tool_choice="get_weather"),
    )

    async def run() -> Any:
        result = Runner.run_streamed(agent, "What is the weather in Paris?", max_turns=4)
        kinds = {event.type async for event in result.stream_events()}
        assert {"raw_response_event", "run_item_stream_event"} <= kinds
        return result.final_output

    assert isinstance(asyncio.run(run()), Forecast)
    assert len(done) == 1


def _weather() -> tuple[Any, list[str]]:
    """A tool, and the cities it was called with. It is there until it was called: a small model
    would call it for ever."""
    done: list[str] = []

    def get_weather(city: str) -> str:
        """Look the weather up."""
        done.append(city)
        return f"Sunny in {city}."

    return function_tool(get_weather, is_enabled=lambda *_: not done), done


if __name__ == "__main__":
    sys.exit(
        main(
            text,
            typed,
            stopping_tool,
            round_trip,
            responses_round_trip,
            streamed,
            responses_streamed,
            responses_memory,
            documented("OpenAI Agents SDK"),
        )
    )
