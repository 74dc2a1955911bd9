"""The router drives the real model through each of the server's dialects."""

from collections.abc import Iterator

import pytest

from flm.router import (
    Config,
    LMRouter,
    Message,
    Request,
    RouterConfig,
    StreamStart,
    Tool,
    ToolChoice,
    UnsupportedModelError,
)
from tests.support.app import RunningApp

DIALECTS = ["flm", "anthropic", "openai"]
QUESTION = "Name the capital of France."
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Paris", "Rome"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = Tool("get_weather", "The weather of the next days.", SCHEMA)


@pytest.fixture
def router(fast_app: RunningApp) -> Iterator[LMRouter]:
    names = dict.fromkeys(DIALECTS, f"{fast_app.url}/v1")
    keys = {"anthropic": "any", "openai": "any"}
    with LMRouter(RouterConfig(env={}, base_urls=names, api_keys=keys)) as router:
        yield router


def asking(
    dialect: str,
    app: RunningApp,
    *messages: Message,
    tools: tuple[Tool, ...] = (),
    system: str | None = None,
    **settings: object,
) -> Request:
    return Request(
        model=f"{dialect}:{app.model.info.id}",
        system=system,
        messages=messages or (Message.user(QUESTION),),
        tools=tools,
        config=Config(**{"temperature": 0, "max_tokens": 24, **settings}),  # type: ignore[arg-type]
    )


def test_every_dialect_gives_the_same_text_whole_and_streamed(
    fast_app: RunningApp, router: LMRouter
) -> None:
    replies = []
    for dialect in DIALECTS:
        request = asking(dialect, fast_app, system="You answer in one sentence.")
        whole = router.complete(request)
        with router.stream(request) as stream:
            pieces = list(stream.text())
        assert "".join(pieces) == stream.response.text == whole.text
        assert len(pieces) > 1
        assert stream.response.finish_reason == whole.finish_reason == "stop"
        assert whole.usage.output_tokens == stream.response.usage.output_tokens
        assert whole.adaptations == stream.response.adaptations == ()
        replies.append((whole.text, whole.usage.output_tokens))
    assert "Paris" in str(replies[0][0])
    assert set(replies) == {replies[0]}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_tool_that_must_be_called_is_and_its_result_is_read(
    dialect: str, fast_app: RunningApp, router: LMRouter
) -> None:
    question = Message.user("What is the weather in Paris?")
    choice = ToolChoice("required", parallel=False)
    request = asking(
        dialect, fast_app, question, tools=(WEATHER,), tool_choice=choice, max_tokens=100
    )
    whole = router.complete(request)
    with router.stream(request) as stream:
        list(stream)
    for response in (whole, stream.response):
        (call,) = response.tool_calls
        assert (call.name, response.finish_reason) == ("get_weather", "tool_call")
        assert call.input["city"] in ("Paris", "Rome")
        assert type(call.input["days"]) is int
    assert whole.tool_calls[0].input == stream.response.tool_calls[0].input
    (call,) = whole.tool_calls
    follow = (question, whole.message, Message.tool(call.id, "Sunny, 21 degrees."))
    assert router.complete(asking(dialect, fast_app, *follow, tools=(WEATHER,), max_tokens=8)).text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_servers_record_comes_under_the_routers_names(
    dialect: str, fast_app: RunningApp, router: LMRouter
) -> None:
    with fast_app.client() as client:
        body = {"prompt": "x", "max_tokens": 1, "top_p": 0.5}
        assert client.post("/v1/completions", json=body).is_success
    request = asking(dialect, fast_app, max_tokens=50_000, extensions={"x_mine": 1})
    whole = router.complete(request)
    with router.stream(request) as stream:
        first, *_ = list(stream)
    assert isinstance(first, StreamStart)
    assert first.adaptations == stream.response.adaptations
    for response in (whole, stream.response):
        told = {entry.field: entry for entry in response.adaptations}
        assert told["config.max_tokens"].action == "clamped"
        assert told["config.max_tokens"].asked == 50_000
        assert (told["config.top_p"].action, told["config.top_p"].applied) == ("defaulted", 0.5)
        assert told["wire.x_mine"].action == "dropped"
        assert len(told) == 3


@pytest.mark.parametrize("dialect", DIALECTS)
def test_errors_are_typed(dialect: str, router: LMRouter) -> None:
    unknown = Request(model=f"{dialect}:nothing-like-it", messages=[Message.user("hi")])
    for act in (router.complete, lambda request: router.stream(request).response):
        with pytest.raises(UnsupportedModelError) as caught:
            act(unknown)
        assert caught.value.status == 404
