"""Errors that providers report, retries, timeouts, and the one client of a router."""

# ruff: noqa: E501 - rows of a table

import asyncio
import datetime
import email.utils
from typing import Any

import httpx
import pytest

from flm.router import (
    AsyncLMRouter,
    AuthError,
    BillingError,
    ConfigurationError,
    ContextLengthError,
    InvalidRequestError,
    LMRouter,
    Message,
    ProviderError,
    RateLimitError,
    Request,
    RetryPolicy,
    RouterConfig,
    RouterError,
    ServerError,
    Timeouts,
    UnsupportedModelError,
)
from flm.router import TimeoutError as RouterTimeoutError
from tests.support.providers import (
    KEYS,
    ReplyData,
    Scripted,
    chat_events,
    chat_reply,
    router_of,
    streamed,
    whole,
)

FLM = Request(model="flm:m", messages=[Message.user("hi")])


def error_body(**details: Any) -> dict[str, Any]:
    return {"error": {"message": "it went wrong", **details}}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, error_body(), InvalidRequestError),
        (401, error_body(), AuthError),
        (402, error_body(), BillingError),
        (403, error_body(), AuthError),
        (404, error_body(code="model_not_found"), UnsupportedModelError),
        (408, error_body(), RouterTimeoutError),
        (413, error_body(), InvalidRequestError),
        (422, error_body(), InvalidRequestError),
        (429, error_body(), RateLimitError),
        (429, error_body(code="insufficient_quota"), BillingError),
        (429, error_body(type="insufficient_quota", code="rate_limit_exceeded"), BillingError),
        (500, error_body(), ServerError),
        (503, error_body(code="queue_full"), ServerError),
        (504, error_body(), RouterTimeoutError),
        (529, error_body(type="overloaded_error"), ServerError),
        (302, error_body(), InvalidRequestError),
        (400, error_body(code="context_length_exceeded"), ContextLengthError),
        (400, {"error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}}, ContextLengthError),
        (404, {"error": {"type": "not_found_error", "message": "model: claude-9"}}, UnsupportedModelError),
        (404, {"error": {"status": "NOT_FOUND", "message": "models/x is not found for API version"}}, UnsupportedModelError),
        (400, {"error": {"status": "FAILED_PRECONDITION", "message": "billing"}}, BillingError),
        (503, [{"error": {"status": "UNAVAILABLE", "message": "m"}}], ServerError),
        (400, "not an object", InvalidRequestError),
        (400, {"error": "text alone"}, InvalidRequestError),
    ],
)  # fmt: skip
def test_what_a_status_and_a_code_mean(status: int, body: Any, kind: type[RouterError]) -> None:
    for act in (
        lambda router: router.complete(FLM),
        lambda router: router.stream(FLM).response,
    ):
        transport = Scripted(whole(body, status))
        with pytest.raises(ProviderError) as caught:
            act(router_of(transport))
        assert type(caught.value) is kind
        assert caught.value.status == status
        assert caught.value.provider == "flm"
        assert transport.streams[0].is_closed
        assert transport.num_sent == 1


def test_an_error_carries_what_there_is_to_know() -> None:
    headers = {"retry-after": "7", "x-request-id": "r1", "x-ratelimit-remaining": "0"}
    reply = ReplyData([b"slow down"], 429, headers)
    with pytest.raises(RateLimitError, match="slow down") as caught:
        router_of(Scripted(reply)).complete(FLM)
    error = caught.value
    assert (error.retry_after, error.request_id, error.code) == (7.0, "r1", "rate_limit")
    assert error.rate_limits == {"x-ratelimit-remaining": "0"}


def test_a_null_error_is_none() -> None:
    reply = chat_reply("x", error=None)
    assert router_of(Scripted(reply)).complete(FLM).text == "x"


def test_keys_are_in_no_error() -> None:
    request = Request(model="claude-x", messages=[Message.user("hi")])
    for reply in (whole(error_body(), 401), httpx.ConnectError("no")):
        with pytest.raises(RouterError) as caught:
            router_of(Scripted(reply)).complete(request)
        assert "k-anthropic" not in f"{caught.value} {caught.value!r} {vars(caught.value)}"


# --- retries -----------------------------------------------------------------------------------


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was slept, without sleeping."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("flm.router.router.sleep", slept.append)
    monkeypatch.setattr("flm.router.asynchronous.sleep", sleep)
    return slept


BUSY = whole(error_body(), 503)


def test_nothing_is_tried_again_unless_asked(waits: list[float]) -> None:
    transport = Scripted(BUSY)
    with pytest.raises(ServerError):
        router_of(transport).complete(FLM)
    assert (transport.num_sent, waits) == (1, [])


def test_retries_wait_longer_each_time_and_end(waits: list[float]) -> None:
    transport = Scripted(BUSY)
    with pytest.raises(ServerError):
        router_of(transport, retry=RetryPolicy(retries=3)).complete(FLM)
    assert (transport.num_sent, waits) == (4, [0.5, 1.0, 2.0])


@pytest.mark.parametrize(
    ("headers", "wait"), [({"retry_after": "3"}, 3.0), ({"retry_after_ms": "1500"}, 1.5)]
)
def test_retry_after_is_honoured(waits: list[float], headers: dict[str, str], wait: float) -> None:
    transport = Scripted(whole(error_body(), 429, **headers), chat_reply("x"))
    router = router_of(transport, retry=RetryPolicy())
    assert router.complete(FLM).text == "x"
    assert waits == [wait]


def test_retry_after_may_be_a_date() -> None:
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    reply = whole(error_body(), 429, retry_after=email.utils.format_datetime(at, usegmt=True))
    with pytest.raises(RateLimitError) as caught:
        router_of(Scripted(reply)).complete(FLM)
    assert caught.value.retry_after is not None
    assert 3000 < caught.value.retry_after <= 3600


def test_a_wait_that_is_too_long_is_told_instead(waits: list[float]) -> None:
    transport = Scripted(whole(error_body(), 429, retry_after="999"))
    with pytest.raises(RateLimitError):
        router_of(transport, retry=RetryPolicy()).complete(FLM)
    assert (transport.num_sent, waits) == (1, [])


def test_what_will_not_pass_is_not_tried_again(waits: list[float]) -> None:
    transport = Scripted(whole(error_body(), 400))
    with pytest.raises(InvalidRequestError):
        router_of(transport, retry=RetryPolicy()).complete(FLM)
    assert (transport.num_sent, waits) == (1, [])


def test_a_stream_is_tried_again_before_its_first_event_only(waits: list[float]) -> None:
    good = streamed(*chat_events("a"))
    transport = Scripted(httpx.ConnectError("no"), BUSY, good)
    router = router_of(transport, retry=RetryPolicy())
    assert router.stream(FLM).response.text == "a"
    assert transport.num_sent == 3
    broken = ReplyData(streamed(*chat_events("a")).chunks[:1], error=httpx.ReadError("broke"))
    transport = Scripted(broken, good)
    with pytest.raises(RouterError):
        _ = router_of(transport, retry=RetryPolicy()).stream(FLM).response
    assert transport.num_sent == 1


def test_the_asynchronous_router_retries_alike(waits: list[float]) -> None:
    async def ask() -> tuple[str | None, str | None]:
        transport = Scripted(BUSY, chat_reply("x"), BUSY, streamed(*chat_events("y")))
        config = RouterConfig(transport=transport, retry=RetryPolicy(), env={})
        async with AsyncLMRouter(config) as router:
            first = await router.complete(FLM)
            second = await router.stream(FLM).response()
            return first.text, second.text

    assert asyncio.run(ask()) == ("x", "y")
    assert waits == [0.5, 0.5]


# --- the client --------------------------------------------------------------------------------


def test_timeouts_are_as_given() -> None:
    transport = Scripted(chat_reply("x"))
    times = Timeouts(connect=1, read=2, write=None, pool=4)
    router_of(transport, timeouts=times).complete(FLM)
    sent = transport.requests[0].extensions["timeout"]
    assert sent == {"connect": 1.0, "read": 2.0, "write": None, "pool": 4.0}
    with pytest.raises(ValueError, match="connect"):
        Timeouts(connect=-1)


def test_a_router_keeps_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    real = httpx.Client

    def counted(**options: Any) -> httpx.Client:
        made.append(options)
        return real(**options)

    monkeypatch.setattr(httpx, "Client", counted)
    router = router_of(Scripted(chat_reply("x")), max_connections=7)
    router.plan(FLM)
    assert made == []
    for _ in range(3):
        router.complete(FLM)
    assert len(made) == 1
    assert made[0]["limits"].max_connections == 7


def test_a_closed_router_says_so() -> None:
    router = router_of(Scripted(chat_reply("x")))
    router.complete(FLM)
    router.close()
    with pytest.raises(ConfigurationError, match="closed"):
        router.complete(FLM)


def test_redirects_are_not_followed() -> None:
    reply = ReplyData([b""], 307, {"location": "http://elsewhere/"})
    transport = Scripted(reply)
    with pytest.raises(ProviderError):
        router_of(transport).complete(FLM)
    assert transport.num_sent == 1


def test_the_local_server_is_never_asked_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    router = LMRouter(RouterConfig(env=KEYS))
    client = router._connected()
    local = client._transport_for_url(httpx.URL("http://127.0.0.1:52625/v1"))
    remote = client._transport_for_url(httpx.URL("http://example.org/v1"))
    assert local is client._transport
    assert remote is not client._transport
    router.close()


def test_nothing_is_printed_or_logged(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "flm")
    router = router_of(Scripted(chat_reply("x")))
    request = Request(model="ollama:m", messages=[Message.user("hi")])
    assert router.complete(request).text == "x"
    assert capsys.readouterr() == ("", "")
    assert [record for record in caplog.records if record.name.startswith("flm")] == []
