"""A provider, or a proxy, at its worst: a typed error or the right text, and no lost connection."""

# ruff: noqa: E501 - events on one line each

import contextlib
import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.router import (
    Config,
    ContextLengthError,
    InvalidRequestError,
    Message,
    ProviderError,
    RateLimitError,
    Request,
    RouterError,
    ServerError,
    StreamAssemblyError,
    TimeoutError,  # noqa: A004
    TransportError,
)
from tests.support.providers import (
    ReplyData,
    Scripted,
    anthropic_events,
    chat_events,
    gemini_event,
    lines,
    responses_events,
    router_of,
    streamed,
    whole,
)

TEXTS = ("Grüße, ", "日本 ", "🙂\n", "end")
STREAMS: dict[str, list[Any]] = {
    "anthropic:claude-haiku-4-5": anthropic_events(*TEXTS),
    "openai:gpt-4.1": responses_events(*TEXTS),
    "flm:m": chat_events(*TEXTS),
    "gemini:gemini-2.5-flash": [
        *(gemini_event(text) for text in TEXTS[:-1]),
        gemini_event(TEXTS[-1], finish="STOP"),
    ],
}
MODELS = st.sampled_from(sorted(STREAMS))


def asking(model: str, **settings: Any) -> Request:
    return Request(model=model, messages=[Message.user("hi")], config=Config(**settings))


def raw(events: list[Any], ending: str = "\n") -> bytes:
    texts = [
        item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for item in events
    ]
    return "".join(f": hi{ending}data: {text}{ending}{ending}" for text in texts).encode()


def pieces(content: bytes, places: list[int]) -> list[bytes]:
    cuts = sorted({place % (len(content) + 1) for place in places})
    return [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]


def read(model: str, reply: ReplyData | Exception, **settings: Any) -> Any:
    """The text or the error; the connection must be closed either way."""
    transport = Scripted(reply)
    with router_of(transport) as router:
        stream = router.stream(asking(model, **settings))
        try:
            found: Any = stream.response.text
        except RouterError as error:
            found = error
    assert all(stream.is_closed for stream in transport.streams)
    return found


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("model", STREAMS)
def test_chunked_at_every_byte(model: str, ending: str) -> None:
    content = raw(STREAMS[model], ending)
    found = read(model, ReplyData([content[i : i + 1] for i in range(len(content))]))
    assert found == "".join(TEXTS)


@given(MODELS, st.lists(st.integers(0, 5000), max_size=12), st.sampled_from(["\n", "\r\n", "\r"]))
def test_chunked_anywhere(model: str, places: list[int], ending: str) -> None:
    found = read(model, ReplyData(pieces(raw(STREAMS[model], ending), places)))
    assert found == "".join(TEXTS)


@given(MODELS, st.data())
def test_mixed_line_endings(model: str, data: st.DataObject) -> None:
    endings = st.sampled_from([b"\n", b"\r\n", b"\r"])
    parts = raw(STREAMS[model]).split(b"\n")
    content = b"".join(part + data.draw(endings) for part in parts)
    # A CR that the next line's LF follows would be one ending.
    content = content.replace(b"\r\n\n", b"\r\n\r\n")
    found = read(model, ReplyData([content]))
    assert found == "".join(TEXTS) or isinstance(found, RouterError)


@given(MODELS, st.integers(0, 5000))
def test_early_close_is_an_error_or_comes_after_the_answer(model: str, length: int) -> None:
    content = raw(STREAMS[model])
    length %= len(content) + 1
    found = read(model, ReplyData([content[:length]]))
    if isinstance(found, StreamAssemblyError):
        assert found.partial is None or "".join(TEXTS).startswith(found.partial.text or "")
    else:
        assert isinstance(found, ProviderError) or found == "".join(TEXTS)


@given(MODELS, st.integers(0, 5000))
def test_a_connection_that_breaks(model: str, length: int) -> None:
    content = raw(STREAMS[model])[:length]
    error = httpx.RemoteProtocolError("peer closed connection")
    found = read(model, ReplyData([content], error=error))
    assert isinstance(found, TransportError | ProviderError) or found == "".join(TEXTS)


@given(MODELS, st.integers(0, 3000), st.binary(min_size=1, max_size=8))
def test_bytes_in_the_middle(model: str, place: int, noise: bytes) -> None:
    content = raw(STREAMS[model])
    place %= len(content)
    found = read(model, ReplyData([content[:place] + noise + content[place:]]))
    assert isinstance(found, str | RouterError)


@given(MODELS, st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["type", "choices", "delta", "content", "error", "candidates", "index",
                         "message", "tool_calls", "function", "usage", "adaptations", "response",
                         "content_block", "item", "output_index", "parts", "finish_reason"]),
        inner, max_size=4),
    max_leaves=12,
))  # fmt: skip
def test_events_of_any_shape(model: str, event: Any) -> None:
    events = STREAMS[model]
    for place in (0, 1, len(events) - 1):
        found = read(model, streamed(*events[:place], event, *events[place:]))
        assert found is None or isinstance(found, str | RouterError)
    with contextlib.suppress(RouterError):
        router_of(Scripted(whole(event))).complete(asking(model))


@pytest.mark.parametrize("model", STREAMS)
def test_invalid_utf8_is_an_error(model: str) -> None:
    content = raw(STREAMS[model]).replace("日".encode(), b"\xff\xfe")
    found = read(model, ReplyData([content]))
    assert isinstance(found, ProviderError)
    assert found.code == "unreadable_reply"


def test_a_missing_mark_is_forgiven_when_the_reason_came() -> None:
    assert read("flm:m", streamed(*chat_events("a", "b")[:-1])) == "ab"
    found = read("flm:m", streamed(*chat_events("a", "b")[:2]))
    assert isinstance(found, StreamAssemblyError)
    assert found.partial is not None
    assert found.partial.text == "ab"


def test_what_comes_after_the_end_is_not_read() -> None:
    transport = Scripted(streamed(*chat_events("a"), *chat_events("b"), "garbage"))
    assert router_of(transport).stream(asking("flm:m")).response.text == "a"
    assert transport.streams[0].num_read == 4


@pytest.mark.parametrize(
    ("model", "event", "kind"),
    [
        ("flm:m", {"error": {"message": "m", "type": "server_error", "code": "internal"}}, ServerError),
        ("flm:m", {"error": {"code": 429, "message": "slow down", "type": "rate_limit_exceeded"}}, RateLimitError),
        ("anthropic:claude-haiku-4-5", {"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, ServerError),
        ("openai:gpt-4.1", {"type": "error", "code": "rate_limit_exceeded", "message": "m"}, RateLimitError),
        ("openai:gpt-4.1", {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "m"}}}, ServerError),
        ("gemini:gemini-2.5-flash", {"error": {"status": "INVALID_ARGUMENT", "message": "The input token count is too high"}}, ContextLengthError),
        ("gemini:gemini-2.5-flash", {"promptFeedback": {"blockReason": "SAFETY"}}, InvalidRequestError),
    ],
)  # fmt: skip
def test_an_error_in_mid_stream(model: str, event: Any, kind: type[RouterError]) -> None:
    found = read(model, streamed(*STREAMS[model][:2], event, *STREAMS[model][2:]))
    assert type(found) is kind


@pytest.mark.parametrize("model", STREAMS)
def test_a_page_of_html_is_an_error(model: str) -> None:
    page = ReplyData([b"<html>proxy</html>"], headers={"content-type": "text/html"})
    assert isinstance(read(model, page), StreamAssemblyError)
    with pytest.raises(ProviderError, match="cannot be read"):
        router_of(Scripted(page)).complete(asking(model))


def test_a_whole_reply_where_a_stream_was_asked_for() -> None:
    reply = whole(
        {
            "id": "1",
            "model": "m",
            "choices": [{"message": {"content": "one END two"}, "finish_reason": "stop"}],
        }
    )
    assert read("flm:m", reply) == "one END two"
    assert read("flm:m", reply, stop=["END", *map(str, range(3, 19))]) == "one "


def test_a_compressed_body_that_is_none() -> None:
    reply = ReplyData([lines(*chat_events("a"))], headers={"content-encoding": "gzip"})
    assert isinstance(read("flm:m", reply), TransportError)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx.ConnectError("refused"), TransportError),
        (httpx.ReadTimeout("slow"), TimeoutError),
        (httpx.PoolTimeout("full"), TimeoutError),
        (httpx.LocalProtocolError("bad"), TransportError),
        (OSError("no route"), TransportError),
    ],
)
def test_faults_of_the_network(error: Exception, kind: type[RouterError]) -> None:
    assert type(read("flm:m", error)) is kind
    with pytest.raises(kind):
        router_of(Scripted(error)).complete(asking("flm:m"))


def test_the_pool_is_whole_after_hostile_replies() -> None:
    """One router, one pool: after a hundred bad streams, good ones still get a connection."""
    bad = [ReplyData([raw(STREAMS["flm:m"])[:n]]) for n in range(0, 400, 4)]
    transport = Scripted(*bad, streamed(*STREAMS["flm:m"]))
    with router_of(transport, max_connections=1) as router:
        for _ in bad:
            with pytest.raises(RouterError):
                _ = router.stream(asking("flm:m")).response
        assert router.stream(asking("flm:m")).response.text == "".join(TEXTS)
    assert all(stream.is_closed for stream in transport.streams)
