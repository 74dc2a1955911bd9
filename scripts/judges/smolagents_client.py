"""smolagents: its model class with a required tool, and an agent that ends by a forced call."""

import sys
from typing import Any

from judgelib.checks import REQUEST_TIMEOUT_S, Server, documented, main
from smolagents import OpenAIModel, Tool, ToolCallingAgent
from smolagents.models import ChatMessage, MessageRole


class Weather(Tool):  # type: ignore[misc]
    """A tool as smolagents wants one: described by class attributes."""

    name = "get_weather"
    description = "Look the weather up."
    inputs = {  # noqa: RUF012 - smolagents reads a plain attribute
        "city": {"type": "string", "description": "The city's name."},
        "unit": {"type": "string", "description": "The unit.", "enum": ["celsius", "kelvin"]},
    }
    output_type = "string"

    def forward(self, city: str, unit: str) -> str:
        """What the tool does."""
        return f"Sunny in {city}, 21 {unit}."


def model_of(server: Server) -> Any:
    """The model class for OpenAI's dialect; it tries once, and a step has one call."""
    return OpenAIModel(
        model_id=server.model,
        api_base=server.url,
        api_key=server.api_key,
        client_kwargs={"max_retries": 0, "timeout": REQUEST_TIMEOUT_S},
        temperature=0,
        max_tokens=200,
        parallel_tool_calls=False,
    )


def user(text: str) -> Any:
    """A message in parts, which is how this client sends every one."""
    return ChatMessage(role=MessageRole.USER, content=[{"type": "text", "text": text}])


def whole(server: Server) -> None:
    """A whole reply, with its counts."""
    reply = model_of(server).generate([user("Name the capital of France.")])
    assert "Paris" in reply.content
    assert reply.token_usage.output_tokens > 0


def stream(server: Server) -> None:
    """A stream gives the text of the whole reply."""
    question = [user("Name the capital of France.")]
    model = model_of(server)
    deltas = list(model.generate_stream(question))
    assert "".join(delta.content or "" for delta in deltas) == model.generate(question).content


def required_tool(server: Server) -> None:
    """tools_to_call_from, which requires a call, gives one with its arguments."""
    reply = model_of(server).generate(
        [user("What is the weather in Paris?")], tools_to_call_from=[Weather()]
    )
    for call in reply.tool_calls:
        assert call.function.name == "get_weather"
    assert reply.tool_calls


def agent(server: Server) -> None:
    """A ToolCallingAgent without other tools ends in one step, by calling final_answer."""
    runner = ToolCallingAgent(tools=[], model=model_of(server), verbosity_level=0)
    result = runner.run("Name the capital of France.", max_steps=1, return_full_result=True)
    assert result.state == "success"


if __name__ == "__main__":
    sys.exit(main(whole, stream, required_tool, agent, documented("smolagents")))
