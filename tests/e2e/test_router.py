"""The router against the real server with the tiny model: both sides tell one truth."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from flm.router import (
    AsyncLMRouter,
    Config,
    LMRouter,
    Message,
    Reasoning,
    Request,
    RouterConfig,
    StreamStart,
    Tool,
    ToolChoice,
    UnsupportedFeatureError,
    UnsupportedModelError,
)
from tests.support.app import RunningApp


def config_of(app: RunningApp, **settings: Any) -> RouterConfig:
    return RouterConfig(env={}, base_urls={"flm": f"{app.url}/v1"}, **settings)


@pytest.fixture
def router(app: RunningApp) -> Iterator[LMRouter]:
    with LMRouter(config_of(app)) as router:
        yield router


def asking(app: RunningApp, *messages: Message, tools: Any = (), **settings: Any) -> Request:
    return Request(
        model=f"flm:{app.model.info.id}",
        messages=messages or (Message.user("hello"),),
        tools=tools,
        config=Config(**{"max_tokens": 12, **settings}),
    )


EVERYTHING: dict[str, Any] = {
    "temperature": 1.5,
    "top_p": 0.9,
    "top_k": 50,
    "min_p": 0.01,
    "seed": 7,
    "frequency_penalty": 0.5,
    "presence_penalty": 0.5,
    "repetition_penalty": 1.1,
    "repeat_last_n": 32,
    "logprobs": 2,
    "stop": ["\n\n"],
    "user_id": "u",
    "store": False,
    "service_tier": "auto",
}


def test_every_setting_reaches_the_server_unchanged(app: RunningApp, router: LMRouter) -> None:
    request = asking(app, **EVERYTHING)
    assert router.plan(request) == ()
    response = router.complete(request)
    assert response.adaptations == ()
    assert response.text is not None
    assert response.usage.output_tokens is not None
    assert response.logprobs is not None
    assert len(response.logprobs[0].top) == 2
    # The settings in force are those that were asked.
    with app.client() as client:
        entries = client.get("/v1/settings").json()["settings"]
    in_force = {entry["field"]: entry["value"] for entry in entries}
    for name in EVERYTHING.keys() & in_force.keys():
        assert in_force[name] == EVERYTHING[name], name


def test_a_stream_says_what_a_reply_says(app: RunningApp, router: LMRouter) -> None:
    request = asking(app, seed=7)
    response = router.complete(request)
    with router.stream(request) as stream:
        first, *_ = list(stream)
    assert isinstance(first, StreamStart)
    assert (stream.response.text, stream.response.finish_reason) == (
        response.text,
        response.finish_reason,
    )
    assert stream.response.usage.output_tokens == response.usage.output_tokens


def test_the_asynchronous_router(app: RunningApp, router: LMRouter) -> None:
    async def ask() -> list[str | None]:
        async with AsyncLMRouter(config_of(app)) as router:
            replies = await asyncio.gather(
                *(router.complete(asking(app, seed=7)) for _ in range(3))
            )
            streamed = await router.stream(asking(app, seed=7)).response()
            return [*(reply.text for reply in replies), streamed.text]

    expected = router.complete(asking(app, seed=7)).text
    assert asyncio.run(ask()) == [expected] * 4


def test_the_servers_record_comes_back_under_our_names(app: RunningApp, router: LMRouter) -> None:
    router.complete(asking(app, temperature=0.5))
    request = asking(app, max_tokens=100_000, seed=1, stop=["e"], extensions={"x_mine": 1})
    response = router.complete(request)
    told = {entry.field: entry.action for entry in response.adaptations}
    assert told["config.max_tokens"] == "clamped"
    assert told["config.temperature"] == "defaulted"
    assert told["wire.x_mine"] == "dropped"


def test_the_server_refuses_with_the_routers_policy(app: RunningApp) -> None:
    with LMRouter(config_of(app, adaptations="refuse")) as strict:
        with pytest.raises(UnsupportedFeatureError) as caught:
            strict.complete(asking(app, max_tokens=100_000))
        assert caught.value.feature == "config.max_tokens"
        assert strict.complete(asking(app, seed=1)).text is not None


def test_silent_is_silent_on_both_sides(app: RunningApp) -> None:
    with LMRouter(config_of(app, adaptations="silent")) as router:
        request = asking(app, seed=1, presence_penalty=-1, extensions={"x_mine": 1})
        assert router.complete(request).adaptations == ()


def test_a_message_is_continued(app: RunningApp, router: LMRouter) -> None:
    messages = (Message.user("hello"), Message.assistant("Once upon a time"))
    response = router.complete(
        asking(app, *messages, continue_final_message=True, seed=3, max_tokens=4)
    )
    assert response.text is not None
    assert not response.text.startswith("Once upon")


def test_a_tool_that_must_be_called_is(app: RunningApp, router: LMRouter) -> None:
    schema = {
        "type": "object",
        "properties": {"on": {"type": "boolean"}},
        "required": ["on"],
        "additionalProperties": False,
    }
    choice = ToolChoice("required", allowed=("lamp", "horn"), parallel=False)
    tools = (Tool("lamp", "Lights.", schema), Tool("horn", None, schema), Tool("bell"))
    response = router.complete(asking(app, tools=tools, tool_choice=choice, seed=5, max_tokens=300))
    (call,) = response.tool_calls
    assert call.name in ("lamp", "horn")
    assert type(call.input["on"]) is bool
    assert response.finish_reason == "tool_call"
    follow = (Message.user("hello"), response.message, Message.tool(call.id, "done"))
    assert router.complete(asking(app, *follow, tools=tools, seed=5)).message.parts


def test_reasoning_that_the_model_has_not_is_told(app: RunningApp, router: LMRouter) -> None:
    response = router.complete(asking(app, reasoning=Reasoning(effort="low"), seed=1))
    told = [(entry.field, entry.action) for entry in response.adaptations]
    assert told == [("config.reasoning.effort", "dropped")]


def test_errors_of_the_server_are_typed(app: RunningApp, router: LMRouter) -> None:
    unknown = Request(model="flm:nothing-like-it", messages=[Message.user("hi")])
    for act in (router.complete, lambda request: router.stream(request).response):
        with pytest.raises(UnsupportedModelError) as caught:
            act(unknown)
        assert caught.value.status == 404
