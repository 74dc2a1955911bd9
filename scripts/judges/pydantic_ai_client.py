"""pydantic-ai: an agent with a tool, and each of its ways to typed output."""

import sys
from dataclasses import dataclass
from typing import Any

from judgelib.checks import REQUEST_TIMEOUT_S, Server, documented, main
from openai import AsyncOpenAI
from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ToolCallPart, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class Capital(BaseModel):
    """A capital and its country."""

    city: str = Field(max_length=40)
    country: "Country"


class Country(BaseModel):
    """A country."""

    name: str = Field(max_length=40)
    continent: str = Field(max_length=40)


Capital.model_rebuild()


def chat_model(server: Server) -> Any:
    """The model behind the provider with our base URL; it tries once."""
    client = AsyncOpenAI(
        base_url=server.url, api_key=server.api_key, max_retries=0, timeout=REQUEST_TIMEOUT_S
    )
    return OpenAIChatModel(server.model, provider=OpenAIProvider(openai_client=client))


SETTINGS: dict[str, Any] = {"temperature": 0, "max_tokens": 200}


@dataclass
class ForceInTurn(AbstractCapability[None]):  # type: ignore[misc]
    """One list of tools for each step: ``tool_choice`` cannot stay the same in a whole run."""

    first: tuple[str, ...]
    second: tuple[str, ...]

    def get_model_settings(self) -> Any:
        """The settings of a step."""
        return lambda context: {
            "tool_choice": list(self.first if context.run_step == 1 else self.second)
        }


def text(server: Server) -> None:
    """An agent answers in words, with its counts."""
    agent = Agent(chat_model(server), model_settings=SETTINGS)
    result = agent.run_sync("Name the capital of France.")
    assert "Paris" in result.output
    assert result.usage.output_tokens > 0


def output_by_tool(server: Server) -> None:
    """output_type as a tool call gives a nested model."""
    agent = Agent(
        chat_model(server),
        output_type=ToolOutput(Capital, name="give_capital"),
        model_settings=SETTINGS,
        retries=0,
    )
    result = agent.run_sync("Name the capital of France.")
    assert isinstance(result.output, Capital)


def output_by_schema(server: Server) -> None:
    """output_type as a response_format gives a nested model."""
    agent = Agent(
        chat_model(server), output_type=NativeOutput(Capital), model_settings=SETTINGS, retries=0
    )
    result = agent.run_sync("Name the capital of France.")
    assert isinstance(result.output, Capital)


def streamed(server: Server) -> None:
    """A streamed run with an output tool ends in the same nested model."""
    agent = Agent(
        chat_model(server),
        output_type=ToolOutput(Capital, name="give_capital"),
        model_settings=SETTINGS,
        retries=0,
    )
    with agent.run_stream_sync("Name the capital of France.") as result:
        assert isinstance(result.get_output(), Capital)


def round_trip(server: Server) -> None:
    """A forced call of a function is executed and sent back; a typed answer comes."""
    done: list[str] = []

    def count_people(country: str) -> int:
        """Count the people of a country."""
        done.append(country)
        return 68_000_000

    agent = Agent(
        chat_model(server),
        output_type=ToolOutput(Capital, name="give_capital"),
        tools=[count_people],
        capabilities=[ForceInTurn(("count_people",), ("give_capital",))],
        model_settings=SETTINGS,
        retries=0,
    )
    result = agent.run_sync("What is the capital of France, and how many people live there?")
    assert len(done) == 1
    assert isinstance(result.output, Capital)
    parts = [part for message in result.all_messages() for part in message.parts]
    assert [part.tool_name for part in parts if isinstance(part, ToolCallPart)] == [
        "count_people",
        "give_capital",
    ]
    assert any(isinstance(part, ToolReturnPart) for part in parts)


if __name__ == "__main__":
    sys.exit(
        main(
            text, output_by_tool, output_by_schema, streamed, round_trip, documented("pydantic-ai")
        )
    )
