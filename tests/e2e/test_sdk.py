"""The OpenAI SDK and curl against the real program with the real model, as a user would."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.support.replies import CHAT, COMPLETIONS, events_of, fold
from tests.support.server import RunningServer

pytestmark = pytest.mark.real

QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."
MODEL = "smollm2:135m"


@pytest.fixture
def sdk(real_server: RunningServer, real_client: httpx.Client) -> Iterator[openai.OpenAI]:
    url = f"{real_server.base_url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as sdk:
        yield sdk


def test_chat(sdk: openai.OpenAI) -> None:
    reply = sdk.chat.completions.create(
        model=MODEL, messages=QUESTION, temperature=0, max_tokens=16, logprobs=True, top_logprobs=2
    )
    choice = reply.choices[0]
    assert choice.message.content == ANSWER
    assert (choice.finish_reason, choice.message.role) == ("stop", "assistant")
    assert choice.message.refusal is None
    assert (reply.object, reply.model) == ("chat.completion", MODEL)
    assert reply.id.startswith("chatcmpl-")
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert choice.logprobs is not None
    tokens = choice.logprobs.content
    assert tokens is not None
    assert "".join(item.token for item in tokens[:-1]) == ANSWER
    for item in tokens:
        assert len(item.top_logprobs) == 2
        # Greedy: the token taken is the most likely one.
        assert item.token == item.top_logprobs[0].token


def test_chat_stream(sdk: openai.OpenAI) -> None:
    stream = sdk.chat.completions.create(
        model=MODEL,
        messages=QUESTION,
        temperature=0,
        max_tokens=16,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == ANSWER
    assert [delta.role for delta in deltas if delta.role] == ["assistant"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert len({chunk.id for chunk in chunks}) == 1


def test_completions_in_every_shape(sdk: openai.OpenAI) -> None:
    told = sdk.completions.create(model=MODEL, prompt="1, 2, 3,", temperature=0, max_tokens=6)
    assert told.choices[0].text.replace(" ", "").startswith("4,5")
    stream = sdk.completions.create(
        model=MODEL, prompt="1, 2, 3,", temperature=0, max_tokens=6, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in stream) == told.choices[0].text
    echoed = sdk.completions.create(
        model=MODEL, prompt="1, 2, 3,", temperature=0, max_tokens=6, echo=True, logprobs=1
    )
    assert echoed.choices[0].text == "1, 2, 3," + told.choices[0].text
    logprobs = echoed.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.token_logprobs is not None
    assert logprobs.token_logprobs[0] is None
    assert all(value <= 0 for value in logprobs.token_logprobs[1:])


def test_async_clients_side_by_side(real_server: RunningServer, sdk: openai.OpenAI) -> None:
    async def ask() -> list[str | None]:
        url = f"{real_server.base_url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:

            async def one() -> str | None:
                reply = await client.chat.completions.create(
                    model=MODEL, messages=QUESTION, temperature=0, max_tokens=16
                )
                return reply.choices[0].message.content

            async def streamed() -> str | None:
                stream = await client.chat.completions.create(
                    model=MODEL, messages=QUESTION, temperature=0, max_tokens=16, stream=True
                )
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

            return await asyncio.gather(one(), streamed(), one(), streamed())

    assert asyncio.run(ask()) == [ANSWER] * 4


def test_raw_responses_and_extensions(sdk: openai.OpenAI) -> None:
    raw = sdk.chat.completions.with_raw_response.create(
        model=MODEL,
        messages=QUESTION,
        max_tokens=4,
        seed=1,
        extra_body={"top_k": 1, "return_token_ids": True, "temprature": 0.5, "min_p": 3},
    )
    assert raw.status_code == 200
    assert raw.headers["content-type"] == "application/json"
    reply = raw.parse()
    assert raw.headers["x-request-id"] == reply.id
    extra = reply.model_extra
    assert extra is not None
    records = {entry["field"]: entry for entry in extra["adaptations"]}
    assert set(records) == {"temprature", "min_p"}
    assert "temperature" in records["temprature"]["reason"]
    choice_extra = reply.choices[0].model_extra
    assert choice_extra is not None
    assert len(choice_extra["token_ids"]) == 4
    assert len(extra["prompt_token_ids"]) == reply.usage.prompt_tokens  # type: ignore[union-attr]


def test_models(sdk: openai.OpenAI) -> None:
    assert MODEL in [model.id for model in sdk.models.list()]
    model = sdk.models.retrieve(MODEL)
    assert model.model_extra is not None
    assert model.model_extra["loaded"]
    assert model.model_extra["dtype"] == "float32"
    with pytest.raises(openai.NotFoundError) as caught:
        sdk.models.retrieve("nope")
    assert caught.value.code == "model_not_found"


def test_errors_are_the_classes_of_the_sdk(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        sdk.chat.completions.create(model=MODEL, messages=QUESTION, n=0)
    assert (bad.value.param, bad.value.code) == ("n", "invalid_value")
    assert bad.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError) as missing:
        sdk.chat.completions.create(model="gpt-99", messages=QUESTION, stream=True)
    assert (missing.value.param, missing.value.code) == ("model", "model_not_found")
    with pytest.raises(openai.BadRequestError) as long:
        sdk.completions.create(model=MODEL, prompt="word " * 4000)
    assert long.value.code == "context_length_exceeded"
    assert "Max length reached!" in str(long.value)
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.chat.completions.create(
            model=MODEL, messages=QUESTION, extra_body={"adaptations": "refuse", "foo": 1}
        )
    assert (refused.value.param, refused.value.code) == ("foo", "refused")
    with pytest.raises(openai.NotFoundError):
        sdk.embeddings.create(model=MODEL, input="x")


# --- curl --------------------------------------------------------------------------------------


def curl(server: RunningServer, path: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = ["curl", "-sS", "--noproxy", "*", *args, server.base_url + path]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def body(**fields: Any) -> str:
    return json.dumps({"messages": QUESTION, "temperature": 0, "max_tokens": 16, **fields})


def test_curl_without_a_content_type(real_server: RunningServer, real_client: Any) -> None:
    # As -d sends it: application/x-www-form-urlencoded.
    reply = json.loads(curl(real_server, CHAT, "-d", body()).stdout)
    assert reply["choices"][0]["message"]["content"] == ANSWER
    none = curl(real_server, CHAT, "-H", "Content-Type:", "-d", body()).stdout
    assert json.loads(none)["choices"] == reply["choices"]


def test_curl_streams(real_server: RunningServer, real_client: Any) -> None:
    out = curl(real_server, CHAT, "-N", "-i", "-d", body(stream=True)).stdout
    head, _, stream = out.partition("\n\n")
    assert head.startswith("HTTP/1.1 200")
    assert "content-type: text/event-stream" in head
    events = [{"usage": None, **event} for event in events_of(stream.splitlines())]
    assert fold(events).text == ANSWER
    assert stream.endswith("data: [DONE]\n\n")


def test_curl_preflight(real_server: RunningServer, real_client: Any) -> None:
    asked = "authorization,content-type,x-stainless-os"
    out = curl(
        real_server,
        CHAT,
        "-i",
        "-X",
        "OPTIONS",
        "-H",
        "Origin: http://page.example",
        "-H",
        "Access-Control-Request-Method: POST",
        "-H",
        f"Access-Control-Request-Headers: {asked}",
    ).stdout.lower()
    assert out.startswith("http/1.1 200")
    headers = dict(line.split(": ", 1) for line in out.splitlines() if ": " in line)
    assert headers["access-control-allow-origin"] == "*"
    assert "post" in headers["access-control-allow-methods"]
    for name in asked.split(","):
        assert name in headers["access-control-allow-headers"]


def test_curl_errors(real_server: RunningServer, real_client: Any) -> None:
    out = curl(real_server, CHAT, "-i", "-d", "{").stdout
    assert out.startswith("HTTP/1.1 400")
    assert json.loads(out.rpartition("\n\n")[2])["error"]["code"] == "invalid_json"
    out = curl(real_server, COMPLETIONS, "-i").stdout
    assert out.startswith("HTTP/1.1 405")
    assert "allow: POST" in out
    status = curl(real_server, "/nope", "-o", "/dev/null", "-w", "%{http_code}").stdout
    assert status == "404"
    assert curl(real_server, "/health", "-f").stdout == '{"status":"ok"}'
    assert curl(real_server, "/health", "-I").stdout.startswith("HTTP/1.1 200")


def test_curl_with_a_large_body_waits_for_continue(
    real_server: RunningServer, real_client: Any, tmp_path: Any
) -> None:
    file = tmp_path / "body.json"
    file.write_text(body(metadata={"note": "x" * 3_000_000}))
    reply = json.loads(curl(real_server, CHAT, "-d", f"@{file}").stdout)
    assert reply["choices"][0]["message"]["content"] == ANSWER
    with file.open("r+b") as large:
        large.truncate(257 * 1024 * 1024)
    out = curl(real_server, CHAT, "-T", str(file), "-X", "POST", "-i").stdout
    assert "HTTP/1.1 413" in out
    assert json.loads(out.rpartition("\n\n")[2])["error"]["code"] == "too_large"
