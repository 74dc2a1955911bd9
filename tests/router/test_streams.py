"""Streams: one start, deltas, one end, in every dialect; cutting at stop sequences."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.router import (
    AsyncLMRouter,
    Config,
    Message,
    Request,
    Response,
    RouterConfig,
    StreamAssemblyError,
    StreamEnd,
    StreamStart,
    TextDelta,
    Usage,
)
from flm.router.cutter import StopCutter
from tests.support.providers import (
    CODEX_KEY,
    KEYS,
    Scripted,
    anthropic_events,
    chat_events,
    gemini_event,
    responses_events,
    router_of,
    streamed,
)

TEXTS = ("The lamp ", "was ", "lit.")
EVENTS: dict[str, list[Any]] = {
    "anthropic:claude-haiku-4-5": anthropic_events(*TEXTS),
    "openai:gpt-4.1": responses_events(*TEXTS),
    "openai-codex:gpt-4.1": responses_events(*TEXTS),
    "openai-chat:gpt-4.1": chat_events(*TEXTS),
    "flm:m": chat_events(*TEXTS),
    "gemini:gemini-2.5-flash": [
        *(gemini_event(text) for text in TEXTS[:-1]),
        gemini_event(TEXTS[-1], finish="STOP"),
    ],
}


def asking(model: str, **settings: Any) -> Request:
    return Request(model=model, messages=[Message.user("hi")], config=Config(**settings))


@pytest.mark.parametrize("model", EVENTS)
def test_one_start_deltas_one_end(model: str) -> None:
    transport = Scripted(streamed(*EVENTS[model]))
    with router_of(transport) as router, router.stream(asking(model)) as stream:
        assert transport.num_sent == 0
        events = list(stream)
    kinds = [event.type for event in events]
    assert kinds == ["start", "text", "text", "text", "end"]
    assert [event.text for event in events if isinstance(event, TextDelta)] == list(TEXTS)
    response = stream.response
    assert (response.text, response.finish_reason) == ("".join(TEXTS), "stop")
    assert response.usage.output_tokens is not None
    assert transport.streams[0].is_closed


@pytest.mark.parametrize("model", EVENTS)
def test_the_asynchronous_router_says_the_same(model: str) -> None:
    async def ask() -> tuple[list[Any], Response, list[str]]:
        transport = Scripted(streamed(*EVENTS[model]))
        config = RouterConfig(env=KEYS, api_keys=CODEX_KEY, transport=transport)
        async with AsyncLMRouter(config) as router:
            stream = router.stream(asking(model))
            events = [event async for event in stream]
            texts = [text async for text in router.stream(asking(model)).text()]
            return events, await stream.response(), texts

    events, response, texts = asyncio.run(ask())
    sync = router_of(Scripted(streamed(*EVENTS[model])))
    assert events == list(sync.stream(asking(model)))
    assert response.text == "".join(texts) == "".join(TEXTS)


def test_the_record_comes_with_the_start() -> None:
    router = router_of(Scripted(streamed(*EVENTS["anthropic:claude-haiku-4-5"])))
    start = next(router.stream(asking("claude-haiku-4-5", seed=1)))
    assert isinstance(start, StreamStart)
    assert [entry.field for entry in start.adaptations] == ["config.max_tokens", "config.seed"]


def test_leaving_early_closes_the_connection() -> None:
    transport = Scripted(streamed(*EVENTS["flm:m"]))
    with router_of(transport).stream(asking("flm:m")) as stream:
        next(stream)
    assert transport.streams[0].is_closed
    assert transport.streams[0].num_read == 1
    with pytest.raises(StreamAssemblyError) as caught:
        _ = stream.response
    assert caught.value.partial is not None
    assert caught.value.partial.finish_reason == "error"


def test_leaving_early_asynchronously_closes_it_too() -> None:
    async def leave() -> Scripted:
        transport = Scripted(streamed(*EVENTS["flm:m"]))
        async with AsyncLMRouter(RouterConfig(env={}, transport=transport)) as router:
            async with router.stream(asking("flm:m")) as stream:
                await anext(stream)
            assert transport.streams[0].is_closed
            with pytest.raises(StreamAssemblyError):
                await stream.response()
            await router.stream(asking("flm:m")).response()
        return transport

    transport = asyncio.run(leave())
    assert [stream.is_closed for stream in transport.streams] == [True, True]
    assert transport.streams[0].num_read == 1


def test_only_the_first_of_several_answers_is_read() -> None:
    events = chat_events("a")
    other = {"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": "length"}]}
    router = router_of(Scripted(streamed(*events[:2], other, *events[2:])))
    response = router.stream(asking("flm:m")).response
    assert (response.text, response.finish_reason) == ("a", "stop")


def test_text_is_the_text_alone() -> None:
    router = router_of(Scripted(streamed(*EVENTS["flm:m"])))
    assert list(router.stream(asking("flm:m")).text()) == list(TEXTS)


# --- truncation --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("why", "reason"), [("max_output_tokens", "length"), ("content_filter", "content_filter")]
)
@pytest.mark.parametrize("settings", [{}, {"stop": ["END"]}])
def test_an_incomplete_response_ends_as_what_it_is(
    why: str, reason: str, settings: dict[str, Any]
) -> None:
    details = {"incomplete_details": {"reason": why}}
    transport = Scripted(streamed(*responses_events(*TEXTS, end="incomplete", **details)))
    router = router_of(transport)
    request = asking("openai:gpt-4.1", **settings)
    response = router.complete(request) if settings else router.stream(request).response
    assert (response.text, response.finish_reason) == ("".join(TEXTS), reason)
    assert response.usage.output_tokens == 20


def test_a_line_may_be_as_long_as_it_is() -> None:
    text = "x" * 3_000_000
    router = router_of(Scripted(streamed(*responses_events(text))))
    assert router.stream(asking("openai:gpt-4.1")).response.text == text


# --- stop sequences on this side ---------------------------------------------------------------


def cut(texts: list[str], stop: list[str]) -> tuple[Response, Any]:
    transport = Scripted(streamed(*responses_events(*texts)))
    response = router_of(transport).complete(asking("openai:gpt-4.1", stop=stop))
    return response, transport


def test_the_sequence_may_span_deltas() -> None:
    response, transport = cut(["one E", "N", "D two", " three", " four"], ["END"])
    assert (response.text, response.finish_reason) == ("one ", "stop")
    assert response.usage == Usage()
    assert (response.id, response.model) == ("resp_1", "gpt-4.1")
    # start and three deltas; the rest was never read.
    assert transport.streams[0].num_read == 4
    assert transport.streams[0].is_closed
    assert transport.num_sent == 1
    assert transport.body["stream"] is True


def test_the_earliest_match_wins() -> None:
    assert cut(["a b c d"], ["c", "b"])[0].text == "a "
    # "b" alone is complete first, but "a b c" begins before it.
    assert cut(["x a", " b", " c"], ["b", "a b c"])[0].text == "x "


def test_a_sequence_at_once_leaves_an_empty_text() -> None:
    response, _ = cut(["END of it"], ["END"])
    assert response.text == ""
    assert response.finish_reason == "stop"


def test_without_a_match_the_end_is_the_providers() -> None:
    response, _ = cut(["one E", "N"], ["END"])
    assert (response.text, response.usage.output_tokens) == ("one EN", 20)


def test_a_stream_is_cut_too_and_silent_keeps_cutting() -> None:
    transport = Scripted(streamed(*responses_events("one E", "ND")))
    router = router_of(transport, adaptations="silent")
    events = list(router.stream(asking("openai:gpt-4.1", stop="END")))
    assert events == [
        StreamStart("resp_1", "gpt-4.1", ()),
        TextDelta("one ", 0),
        StreamEnd("stop"),
    ]


def test_more_sequences_than_the_provider_takes_are_applied_here() -> None:
    stops = [f"<{number}>" for number in range(17)]
    transport = Scripted(streamed(*chat_events("a <1", "6> b")))
    response = router_of(transport).complete(asking("flm:m", stop=stops))
    assert response.text == "a "
    assert [entry.action for entry in response.adaptations] == ["client_side"]
    assert "stop" not in transport.body


TEXT = st.text("ab.", min_size=1, max_size=12)


@given(st.lists(TEXT, min_size=1, max_size=8), st.lists(TEXT, min_size=1, max_size=3))
def test_how_the_text_is_cut_into_deltas_changes_nothing(texts: list[str], stop: list[str]) -> None:
    whole = "".join(texts)
    places = [whole.find(item) for item in stop if item in whole]
    cutter = StopCutter(stop)
    events = []
    for event in [*map(TextDelta, texts), StreamEnd("length")]:
        events += cutter.feed(event)
        if cutter.is_cut:
            break
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert said == (whole[: min(places)] if places else whole)
    assert events[-1] == StreamEnd("stop" if places else "length")
    assert cutter.is_cut == bool(places)
