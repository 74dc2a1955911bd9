"""litellm: the server behind its openai/ prefix, whole, streamed, typed and with a forced tool."""

import os
import sys
from typing import Any

# Before the import: otherwise it asks a web page for its table of prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from judgelib.checks import REQUEST_TIMEOUT_S, Server, documented, main
from pydantic import BaseModel, Field

QUESTION = [{"role": "user", "content": "Name the capital of France."}]


class Capital(BaseModel):
    """A capital and its country."""

    city: str = Field(max_length=40)
    country: str = Field(max_length=40)


TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "give_capital",
        "description": "Give the capital of a country.",
        "parameters": Capital.model_json_schema(),
    },
}


def ask(server: Server, **options: Any) -> Any:
    """One try, greedy."""
    return litellm.completion(
        model=f"openai/{server.model}",
        api_base=server.url,
        api_key=server.api_key,
        temperature=0,
        max_tokens=200,
        num_retries=0,
        timeout=REQUEST_TIMEOUT_S,
        **{"messages": QUESTION, **options},
    )


def whole(server: Server) -> None:
    """A whole reply, with its counts."""
    reply = ask(server)
    assert "Paris" in reply.choices[0].message.content
    assert reply.usage.total_tokens > reply.usage.prompt_tokens > 0


def stream(server: Server) -> None:
    """A stream puts together to the whole reply."""
    chunks = list(ask(server, stream=True, stream_options={"include_usage": True}))
    built = litellm.stream_chunk_builder(chunks, messages=QUESTION)
    told = ask(server)
    assert built.choices[0].message.content == told.choices[0].message.content
    assert built.usage.completion_tokens == told.usage.completion_tokens


def typed(server: Server) -> None:
    """response_format as a pydantic class gives text that it accepts."""
    reply = ask(server, response_format=Capital)
    Capital.model_validate_json(reply.choices[0].message.content)


def round_trip(server: Server) -> None:
    """A forced call, its result sent back, an answer in words."""
    called = ask(server, tools=[TOOL], tool_choice="required").choices[0]
    assert called.finish_reason == "tool_calls"
    results = []
    for call in called.message.tool_calls:
        Capital.model_validate_json(call.function.arguments)
        results.append({"role": "tool", "tool_call_id": call.id, "content": "Paris it is."})
    assert results
    history = [*QUESTION, called.message, *results]
    answer = ask(server, messages=history, tools=[TOOL], tool_choice="none").choices[0]
    assert answer.message.content


def streamed_call(server: Server) -> None:
    """A named call in a stream puts together to valid arguments."""
    choice = {"type": "function", "function": {"name": "give_capital"}}
    chunks = list(ask(server, tools=[TOOL], tool_choice=choice, stream=True))
    built = litellm.stream_chunk_builder(chunks, messages=QUESTION)
    (call,) = built.choices[0].message.tool_calls
    Capital.model_validate_json(call.function.arguments)


if __name__ == "__main__":
    sys.exit(main(whole, stream, typed, round_trip, streamed_call, documented("LiteLLM")))
