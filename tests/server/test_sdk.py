"""The OpenAI SDK, as a user would."""

from collections.abc import Iterator

import openai
import pytest

from flm.errors import QueueFullError
from tests.server.conftest import HELLO, LiveServer
from tests.support.fake_service import FakeService, Script


@pytest.fixture
def sdk(live: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="flm", max_retries=0) as sdk:
        yield sdk


def test_a_chat(sdk: openai.OpenAI) -> None:
    reply = sdk.chat.completions.create(
        model="fake:1b",
        messages=HELLO,  # type: ignore[arg-type]
        temperature=0.5,
        logprobs=True,
        top_logprobs=2,
        seed=3,
        extra_body={"top_k": 20, "repeat_last_n": -1, "foo": 1},
    )
    assert reply.choices[0].message.content == "Hello, world!"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.choices[0].logprobs is not None
    assert reply.choices[0].logprobs.content is not None
    assert len(reply.choices[0].logprobs.content[0].top_logprobs) == 2
    assert reply.usage is not None
    assert reply.usage.prompt_tokens_details is not None
    assert reply.usage.prompt_tokens_details.cached_tokens == 2
    assert reply.model_extra is not None
    assert [entry["field"] for entry in reply.model_extra["adaptations"]] == ["foo"]


def test_a_stream(sdk: openai.OpenAI, service: FakeService) -> None:
    service.script = Script(pieces=("Hm", "Yes", "!"), num_reasoning=1)
    stream = sdk.chat.completions.create(
        model="fake:1b",
        messages=HELLO,  # type: ignore[arg-type]
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "Yes!"
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "Hm"
    assert [delta.role for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 3


def test_a_stream_that_fails(sdk: openai.OpenAI, service: FakeService) -> None:
    service.script = Script(fail_at=2, error=QueueFullError("it broke"))
    stream = sdk.chat.completions.create(
        model="fake:1b",
        messages=HELLO,  # type: ignore[arg-type]
        stream=True,
    )
    with pytest.raises(openai.APIError, match="it broke"):
        list(stream)


def test_completions(sdk: openai.OpenAI) -> None:
    reply = sdk.completions.create(model="fake:1b", prompt="Once", echo=True, logprobs=1)
    assert reply.choices[0].text == "OnceHello, world!"
    assert reply.choices[0].logprobs is not None
    assert reply.choices[0].logprobs.text_offset is not None
    assert reply.choices[0].logprobs.text_offset[4] == 4
    parts = sdk.completions.create(model="fake:1b", prompt="Once", stream=True)
    assert "".join(part.choices[0].text for part in parts) == "Hello, world!"


def test_raw_headers(sdk: openai.OpenAI) -> None:
    raw = sdk.chat.completions.with_raw_response.create(
        model="fake:1b",
        messages=HELLO,  # type: ignore[arg-type]
    )
    assert raw.headers["x-request-id"] == raw.parse().id


def test_errors(sdk: openai.OpenAI, service: FakeService) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        sdk.models.retrieve("nope")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        sdk.chat.completions.create(
            model="fake:1b",
            messages=HELLO,  # type: ignore[arg-type]
            extra_body={"repeat_last_n": -2},
        )
    assert wrong.value.param == "repeat_last_n"
    service.script = Script(start_error=QueueFullError("full"))
    with pytest.raises(openai.InternalServerError) as full:
        sdk.completions.create(model="fake:1b", prompt="x")
    assert full.value.response.headers["retry-after"] == "1"


def test_models(sdk: openai.OpenAI) -> None:
    assert [model.id for model in sdk.models.list()] == ["fake:1b", "org/other:2b"]
    assert sdk.models.retrieve("org/other:2b").owned_by == "flm"


@pytest.mark.anyio
async def test_async(live: LiveServer) -> None:
    async with openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key="flm") as sdk:
        stream = await sdk.chat.completions.create(
            model="fake:1b",
            messages=HELLO,  # type: ignore[arg-type]
            stream=True,
        )
        texts = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(texts) == "Hello, world!"
