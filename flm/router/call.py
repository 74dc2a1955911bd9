"""One call: everything about it that is decided before it is sent, and the reading of its reply.

Nothing here touches the network, so the blocking and the asynchronous router share all of it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn
from urllib.parse import quote

from flm.adaptation import Adaptation, Mode
from flm.router import checks
from flm.router.adapt import Adapted, Body, adapt, merged
from flm.router.assembly import Assembler
from flm.router.capabilities import Provider
from flm.router.cutter import StopCutter
from flm.router.dialects import DIALECTS
from flm.router.errors import ProviderError, StreamAssemblyError, UnsupportedFeatureError
from flm.router.faults import error_of, unreadable
from flm.router.request import Request
from flm.router.response import Response, StreamEnd, StreamEvent, StreamStart
from flm.router.spelling import write_settings
from flm.router.sse import SSEDecoder

_MALFORMED = (
    AttributeError,
    IndexError,
    KeyError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What reading a reply of another shape raises."""
DONE = "[DONE]"


@dataclass(frozen=True, slots=True)
class Call:
    """A request as it goes out. ``url`` is whole; the key is added when it is sent."""

    provider: Provider
    url: str
    body: Body
    streams: bool
    records: tuple[Adaptation, ...]
    stop: tuple[str, ...]
    policy: Mode
    wants_logprobs: bool
    model: str

    def payload(self) -> bytes:
        """The body as JSON bytes."""
        return json.dumps(self.body, allow_nan=False).encode()

    def seen(self, start: StreamStart) -> StreamStart:
        """The start as the caller gets it, with the record that the policy asks for."""
        if self.policy == "silent":
            records: tuple[Adaptation, ...] = ()
        else:
            setting_of = self.provider.setting_of
            theirs = tuple(
                replace(item, field=setting_of(item.field)) for item in start.adaptations
            )
            records = self.records + theirs
        return replace(start, model=start.model or self.model, adaptations=records)

    def whole(self, status: int, content: bytes) -> Response:
        """The reply to a call that does not stream.

        Raises:
            ProviderError: it is an error, or nothing that can be read.
        """
        assembler = Assembler(wants_logprobs=self.wants_logprobs)
        try:
            data = json.loads(content)
            if not isinstance(data, Mapping):
                raise TypeError(f"it is a {type(data).__name__}, not an object")
            for event in DIALECTS[self.provider.dialect].whole(data, self.provider.name):
                assembler.feed(self.seen(event) if isinstance(event, StreamStart) else event)
            return replace(assembler.response(), provider_data=data)
        except _MALFORMED as error:
            excerpt = content[:120].decode("utf-8", errors="replace")
            why = f"{_named(error)} in {excerpt!r}"
            raise unreadable(self.provider.name, why, status) from error

    def failed(self, status: int, headers: Mapping[str, str], content: bytes) -> Exception:
        """The error of a reply whose status is not a success."""
        lowered = {name.lower(): value for name, value in headers.items()}
        try:
            data: Any = json.loads(content)
        except (ValueError, RecursionError):
            data = content[:300].decode("utf-8", errors="replace")
        error = error_of(self.provider.name, data, status, lowered)
        details = data.get("error") if isinstance(data, Mapping) else None
        param = details.get("param") if isinstance(details, Mapping) else None
        is_refusal = self.provider.keeps_records and error.provider_code == "refused"
        if isinstance(details, Mapping) and is_refusal and isinstance(param, str):
            feature = self.provider.setting_of(param)
            return UnsupportedFeatureError(
                f"{feature} was refused by {self.provider.name}: {details.get('message')} Leave it "
                "out, or use adaptations='note'.",
                feature=feature,
                provider=self.provider.name,
                status=status,
            )
        return error


def make_call(
    request: Request, provider: Provider, model: str, policy: Mode, *, base_url: str, stream: bool
) -> Call:
    """Adapt a request and write it.

    Raises:
        UnsupportedFeatureError: something in it is refused.
        OSError: a file that it names cannot be read.
        ValueError: a text in it is none that can be sent.
    """
    adapted = adapt(request, provider, model, policy)
    streams = stream or provider.always_streams or bool(adapted.stop)
    body = _body(adapted, policy, stream=streams)
    checks.sendable("", {"model": model, **body})
    path = provider.stream_path if streams and provider.stream_path else provider.path
    return Call(
        provider=provider,
        url=base_url.rstrip("/") + path.replace("{model}", quote(model, safe="/:@")),
        body=body,
        streams=streams,
        records=adapted.records,
        stop=adapted.stop,
        policy=policy,
        wants_logprobs=request.config.logprobs is not None,
        model=model,
    )


def _body(adapted: Adapted, policy: Mode, *, stream: bool) -> Body:
    body = DIALECTS[adapted.provider.dialect].body(adapted, stream=stream)
    write_settings(body, adapted)
    if adapted.provider.keeps_records:
        body["adaptations"] = policy
    return merged(body, adapted.request.config.extensions)


def _named(error: Exception) -> str:
    return f"{type(error).__name__} ({error})"


class StreamReader:
    """Reads the bytes of one stream: one start, deltas, one end."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._decoder = SSEDecoder()
        self._parser = DIALECTS[call.provider.dialect].parser(call.provider.name)
        self._cutter = StopCutter(call.stop) if call.stop else None
        self._assembler = Assembler(wants_logprobs=call.wants_logprobs)
        self._is_started = False
        self.is_done = False
        """True once the end was yielded; the connection is of no more use then."""

    def feed(self, chunk: bytes) -> Iterator[StreamEvent]:
        """The events that ``chunk`` completes.

        Raises:
            ProviderError: the provider reported an error, or what cannot be read.
        """
        yield from self._read(self._decoder.feed(chunk))

    def whole(self, content: bytes) -> Iterator[StreamEvent]:
        """The events of a reply that came whole though a stream was asked for.

        Raises:
            ProviderError: it is an error, or nothing that can be read.
        """
        try:
            data = json.loads(content)
            if not isinstance(data, Mapping):
                raise TypeError(f"it is a {type(data).__name__}, not an object")
            dialect = DIALECTS[self._call.provider.dialect]
            yield from self._shown(dialect.whole(data, self._call.provider.name))
        except _MALFORMED as error:
            raise self._unreadable(error) from error

    def finish(self) -> Iterator[StreamEvent]:
        """The last events, once the bytes have ended.

        Raises:
            StreamAssemblyError: they ended too early.
            ProviderError: as for ``feed``.
        """
        if not self.is_done:
            yield from self._read(self._decoder.finish())
        if not self.is_done:
            yield from self._guarded(self._parser.finish())
        if not self.is_done:
            self.give_up()

    def give_up(self) -> NoReturn:
        """The end will not come.

        Raises:
            StreamAssemblyError: always.
        """
        raise StreamAssemblyError(
            f"The stream of {self._call.provider.name} ended before the answer did. Try again; "
            "what had come is in partial.",
            partial=self.partial(),
            provider=self._call.provider.name,
        )

    def response(self) -> Response:
        """The reply, once it is done.

        Raises:
            StreamAssemblyError: the events do not add up to a reply.
        """
        try:
            return self._assembler.response()
        except _MALFORMED as error:
            raise StreamAssemblyError(
                f"The stream of {self._call.provider.name} does not add up: {error}. Try again.",
                provider=self._call.provider.name,
            ) from error

    def partial(self) -> Response | None:
        """What has come so far; None when that is nothing."""
        if self._assembler.is_empty:
            return None
        try:
            return self._assembler.response()
        except _MALFORMED:
            return None

    def _read(self, texts: Iterator[str]) -> Iterator[StreamEvent]:
        try:
            for text in texts:
                if text.strip() == DONE:
                    yield from self._shown(self._parser.finish(is_marked=True))
                elif text.strip():
                    data = json.loads(text)
                    if not isinstance(data, Mapping):
                        raise TypeError(f"an event is a {type(data).__name__}, not an object")
                    yield from self._shown(self._parser.feed(data))
                if self.is_done:
                    return
        except _MALFORMED as error:
            raise self._unreadable(error) from error

    def _guarded(self, events: Iterator[StreamEvent]) -> Iterator[StreamEvent]:
        try:
            yield from self._shown(events)
        except _MALFORMED as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> ProviderError:
        return unreadable(self._call.provider.name, _named(error))

    def _shown(self, events: Iterator[StreamEvent]) -> Iterator[StreamEvent]:
        for event in events:
            cut = self._cutter.feed(event) if self._cutter is not None else iter((event,))
            for item in cut:
                if isinstance(item, StreamStart):
                    if self._is_started:
                        continue
                    self._is_started = True
                    item = self._call.seen(item)
                elif not self._is_started:
                    raise ValueError("the stream has no beginning")
                self._assembler.feed(item)
                self.is_done = isinstance(item, StreamEnd)
                yield item
            if self.is_done:
                return
