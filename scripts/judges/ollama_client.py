"""Ollama's own Python client: lists, shows, chats and generates, whole and streamed."""

import asyncio
import sys
from collections.abc import Callable
from typing import Annotated, Any

import httpx
import ollama
from judgelib.checks import REQUEST_TIMEOUT_S, Server, documented, main
from pydantic import BaseModel, ConfigDict, Field

QUESTION = "Name the capital of France."
CHAT: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
GREEDY = {"temperature": 0, "num_predict": 32}


class City(BaseModel):
    """A city, and nothing else: a schema that allows more keys lets the model go on."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=40)
    sights: list[Annotated[str, Field(max_length=20)]] = Field(max_length=3)
    is_capital: bool


# A value for every option of the client. Those that are read or met anyway are not recorded.
READ: dict[str, Any] = {
    "num_keep": 4,
    "seed": 1,
    "num_predict": 4,
    "top_k": 20,
    "top_p": 0.9,
    "tfs_z": 1.0,
    "typical_p": 1.0,
    "repeat_last_n": 32,
    "temperature": 0,
    "repeat_penalty": 1.1,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "penalize_newline": True,
    "stop": ["no such text"],
    "numa": False,
    "main_gpu": 0,
    "low_vram": False,
    "logits_all": False,
    "vocab_only": False,
    "use_mlock": False,
    "embedding_only": False,
}
UNREAD: dict[str, Any] = {
    "num_ctx": 4,
    "num_batch": 512,
    "num_gpu": 99,
    "f16_kv": True,
    "use_mmap": True,
    "num_thread": 7,
}


def host(server: Server) -> str:
    """Where Ollama's client finds the server."""
    return server.url.removesuffix("/v1")


def connect(server: Server) -> ollama.Client:
    """A client that reaches loopback directly."""
    return ollama.Client(host(server), timeout=REQUEST_TIMEOUT_S, trust_env=False)


def raw(server: Server, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """A reply with what the client's own types leave out."""
    reply = httpx.post(host(server) + path, json=body, timeout=REQUEST_TIMEOUT_S, trust_env=False)
    reply.raise_for_status()
    found: dict[str, Any] = reply.json()
    return found


def error_of(ask: Callable[[], object]) -> ollama.ResponseError:
    """The error that ``ask`` ends with."""
    try:
        ask()
    except ollama.ResponseError as error:
        return error
    raise AssertionError("there was no error")


def models(server: Server) -> None:
    """list, ps and show know the model."""
    client = connect(server)
    listed = {model.model: model for model in client.list().models}
    model = listed[server.model]
    assert model.size
    assert model.digest
    assert len(model.digest) == 64
    assert model.details
    assert model.details.parameter_size == "135M"
    (loaded,) = client.ps().models
    assert (loaded.model, loaded.digest) == (model.model, model.digest)
    shown = client.show(server.model)
    assert shown.modelinfo
    family = shown.modelinfo["general.architecture"]
    assert shown.modelinfo[f"{family}.context_length"] == loaded.context_length
    assert {"completion", "tools"} == set(shown.capabilities or ())
    assert "temperature" in str(shown.parameters)
    assert client.show(f"{server.model}:latest").modelfile == shown.modelfile


def chat(server: Server) -> None:
    """A chat, whole and streamed, by the plain client and the asynchronous one."""
    client = connect(server)
    whole = client.chat(server.model, CHAT, options=GREEDY)
    assert "Paris" in str(whole.message.content)
    assert (whole.done, whole.done_reason) == (True, "stop")
    assert whole.eval_count
    parts = list(client.chat(server.model, CHAT, options=GREEDY, stream=True))
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count == whole.eval_count

    async def ask() -> str:
        own = ollama.AsyncClient(host(server), timeout=REQUEST_TIMEOUT_S, trust_env=False)
        stream = await own.chat(server.model, CHAT, options=GREEDY, stream=True)
        return "".join([part.message.content or "" async for part in stream])

    assert asyncio.run(ask()) == whole.message.content


def generate(server: Server) -> None:
    """generate, streamed, raw, with a system message, and on from a context."""
    client = connect(server)
    whole = client.generate(server.model, QUESTION, options=GREEDY)
    assert "Paris" in str(whole.response)
    parts = list(client.generate(server.model, QUESTION, options=GREEDY, stream=True))
    assert "".join(part.response or "" for part in parts) == whole.response
    assert parts[-1].context == whole.context
    again = client.generate(server.model, "And Spain?", context=whole.context, options=GREEDY)
    assert whole.context
    assert (again.context or ())[: len(whole.context)] == whole.context
    system = client.generate(server.model, QUESTION, system="Be brief.", options=GREEDY)
    assert system.prompt_eval_count != whole.prompt_eval_count
    plain = client.generate(server.model, QUESTION, raw=True, options={"num_predict": 2})
    assert plain.prompt_eval_count
    assert plain.prompt_eval_count < (whole.prompt_eval_count or 0)


def formats(server: Server) -> None:
    """A pydantic model's schema is held, whole and streamed."""
    client = connect(server)
    wish: dict[str, Any] = {"format": City.model_json_schema(), "options": {"temperature": 0}}
    asked = [{"role": "user", "content": "Tell me about Paris, as JSON."}]
    told = client.chat(server.model, asked, **wish).message.content
    City.model_validate_json(told or "")
    parts = client.chat(server.model, asked, stream=True, **wish)
    assert "".join(part.message.content or "" for part in parts) == told


def tools(server: Server) -> None:
    """A Python function as a tool; forced calls are objects, and their round trip is whole."""

    def get_weather(city: str) -> str:
        """Look the weather up.

        Args:
          city: The city's name.
        """
        return f"It is sunny in {city}."

    client = connect(server)
    asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    client.chat(server.model, asked, tools=[get_weather], options=GREEDY)
    tool = {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 20}},
                "required": ["city"],
            },
        },
    }
    # The client has no tool_choice of its own.
    body = {"model": server.model, "messages": asked, "tools": [tool], "stream": False}
    reply = raw(server, "/api/chat", {**body, "tool_choice": "required", "options": {"seed": 1}})
    found = ollama.ChatResponse(**reply)
    assert found.message.tool_calls
    results = [
        {
            "role": "tool",
            "tool_name": call.function.name,
            "content": get_weather(**call.function.arguments),
        }
        for call in found.message.tool_calls
    ]
    answer = client.chat(server.model, [*asked, found.message, *results], options=GREEDY)
    assert answer.message.content


def options(server: Server) -> None:
    """Each option that the client knows is read or recorded, never an error."""
    assert set(ollama.Options.model_fields) == {*READ, *UNREAD}
    values = ollama.Options(**READ, **UNREAD).model_dump(exclude_none=True)
    body = {"model": server.model, "messages": CHAT, "options": values, "stream": False}
    reply = raw(server, "/api/chat", body)
    told = {entry["field"] for entry in reply.get("adaptations", ())}
    assert told == {f"options.{name}" for name in UNREAD}, told


def think(server: Server) -> None:
    """think on a model that cannot is answered and recorded."""
    reply = connect(server).chat(server.model, CHAT, think=True, options=GREEDY)
    assert reply.message.content
    assert reply.message.thinking is None
    body = {"model": server.model, "messages": CHAT, "think": "low", "stream": False}
    told = raw(server, "/api/chat", {**body, "options": {"num_predict": 1}})["adaptations"]
    assert ("think", "dropped") in [(entry["field"], entry["action"]) for entry in told]


def errors(server: Server) -> None:
    """What cannot be done is an error that says why, with a status that fits."""
    client = connect(server)
    for status, ask in (
        (501, lambda: client.embed(server.model, "text")),
        (501, lambda: client.embeddings(server.model, "text")),
        (501, lambda: client.pull("x")),
        (501, lambda: client.delete("x")),
        (404, lambda: client.chat("no-such-model", CHAT)),
        (404, lambda: list(client.chat("no-such-model", CHAT, stream=True))),
        (404, lambda: client.show("no-such-model")),
        (400, lambda: client.generate(server.model, "x", suffix="y")),
        (400, lambda: client.generate(server.model, "x", images=[b"picture"])),
    ):
        error = error_of(ask)
        assert error.status_code == status, error
        assert len(error.error) > 20


def loading(server: Server) -> None:
    """Requests without a message load the model, and asking to unload it is answered."""
    client = connect(server)
    assert client.chat(server.model).done_reason == "load"
    assert client.generate(server.model, keep_alive=-1).done_reason == "load"
    assert client.generate(server.model, keep_alive=0).done_reason == "unload"


def cancel(server: Server) -> None:
    """A stream that is cancelled by its name ends with what was said."""
    body = {"model": server.model, "messages": CHAT, "ignore_eos": True, "request_id": "judge"}
    with (
        httpx.Client(timeout=REQUEST_TIMEOUT_S, trust_env=False) as client,
        client.stream("POST", host(server) + "/api/chat", json=body) as reply,
    ):
        lines = reply.iter_lines()
        next(lines)
        assert raw(server, "/api/cancel", {"request_id": "judge"})["cancelled"] is True
        *_, last = lines
    assert '"done_reason":"cancel"' in last
    assert raw(server, "/api/cancel", {"request_id": "judge"})["cancelled"] is False


if __name__ == "__main__":
    sys.exit(
        main(
            models,
            chat,
            generate,
            formats,
            tools,
            options,
            think,
            errors,
            loading,
            cancel,
            documented("Ollama"),
        )
    )
