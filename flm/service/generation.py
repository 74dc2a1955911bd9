"""One admitted request: the engine's events in, the reply's events out."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

from flm.engine.protocol import (
    EngineEvent,
    EngineRequest,
    Failed,
    Finished,
    PromptProgress,
    PromptRead,
    TokenOut,
)
from flm.service.echo import prompt_echo, token_logprob
from flm.service.models import LoadedModel, Prepared
from flm.service.thinking import may_reason
from flm.sticky import Snapshot
from flm.text.parsers import ReplyShape
from flm.text.pipeline import OutputPipeline
from flm.types import (
    ChoiceDone,
    Drafts,
    Event,
    FinishReason,
    PromptEcho,
    ReadProgress,
    RequestDone,
    TextDelta,
    Timings,
    ToolCallDelta,
    Usage,
)

T = TypeVar("T")
# Below this many tokens a thread costs more than it saves.
_INLINE_ECHO = 256


class Aside(Protocol):
    """Runs work in a thread, off the event loop."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """The result of ``work``."""


@dataclass(slots=True, eq=False)
class _Choice:
    """One sequence of the request, as far as it has come."""

    request: EngineRequest
    pipeline: OutputPipeline
    is_told: bool = False
    read: PromptRead | None = None
    first_at: float | None = None
    end: Finished | None = None
    drafts: Drafts | None = None
    last_id: int | None = None


class Generation:
    """The reply in the making. Created on the event loop that reads it.

    ``snapshot`` are the settings frozen at admission; ``aside`` is where long work is done, and
    ``on_end`` is called once, when nothing of the request runs any more.
    """

    def __init__(
        self,
        model: LoadedModel,
        prepared: Prepared,
        requests: Sequence[EngineRequest],
        snapshot: Snapshot,
        *,
        aside: Aside,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._aside = aside
        self._on_end = on_end
        self.snapshot = snapshot
        self.prepared = prepared
        self._model = model
        self._choices = {
            request.id: _Choice(
                request,
                _pipeline(model, prepared, index),
                drafts=Drafts() if model.speculates else None,
            )
            for index, request in enumerate(requests)
        }
        self._loop = asyncio.get_running_loop()
        self._inbox: asyncio.Queue[EngineEvent] = asyncio.Queue()
        self._is_cancelled = False

    @property
    def prompt_ids(self) -> tuple[tuple[int, ...], ...]:
        """Token ids of every prompt."""
        return self.prepared.prompt_ids

    def admit(self, snapshot: Snapshot) -> None:
        """Take the settings that were written and frozen as the request was admitted."""
        self.snapshot = snapshot

    def sink(self, event: EngineEvent) -> None:
        """Take an event from the engine's thread."""
        self._loop.call_soon_threadsafe(self._inbox.put_nowait, event)

    def cancel(self) -> None:
        """End every sequence that still runs and free what it holds. Safe to call twice."""
        if self._is_cancelled:
            return
        self._is_cancelled = True
        self._on_end()
        self.stop()

    def stop(self) -> bool:
        """End every sequence that still runs; the events go on to their end, and the reason of
        what was cut is ``cancel``. False when nothing runs any more."""
        running = [choice for choice in self._choices.values() if choice.end is None]
        for choice in running:
            self._model.engine.abort(choice.request.id)
        return bool(running)

    async def events(self) -> AsyncIterator[Event]:
        """The events of the reply, in order (see ``flm.types.Event``).

        Leaving the iteration early cancels the request.

        Raises:
            FlmError: the engine could not finish the request.
        """
        try:
            while any(choice.end is None for choice in self._choices.values()):
                for event in await self._translate(await self._inbox.get()):
                    yield event
            yield RequestDone(self._usage(), tuple(map(_timings, self._choices.values())))
        finally:
            self.cancel()

    # --- from engine events to reply events ----------------------------------------------------

    def num_decoded(self, request_id: str) -> int:
        """Tokens that one sequence has given so far."""
        return self._choices[request_id].pipeline.num_tokens

    async def _translate(self, event: EngineEvent) -> Sequence[Event]:
        choice = self._choices[event.request_id]
        if isinstance(event, TokenOut):
            return self._on_token(choice, event)
        if isinstance(event, PromptProgress):
            return (_progress(choice, event),)
        if isinstance(event, PromptRead):
            choice.read = event
            return (await self._echo(choice, event),) if self.prepared.request.echo else ()
        if isinstance(event, Finished):
            return self._on_finished(choice, event)
        assert isinstance(event, Failed)
        choice.end = _ended_by_failure(choice.request)
        raise event.error

    async def _echo(self, choice: _Choice, event: PromptRead) -> PromptEcho:
        ids = choice.request.prompt_ids
        tokenizer, index = self._model.tokenizer, choice.pipeline.index
        if len(ids) <= _INLINE_ECHO:
            return prompt_echo(tokenizer, index, ids, event.logprobs)
        return await self._aside(partial(prompt_echo, tokenizer, index, ids, event.logprobs))

    def _on_token(self, choice: _Choice, event: TokenOut) -> Sequence[Event]:
        if choice.is_told:
            return ()
        choice.last_id = event.token_id
        if choice.drafts is not None:
            choice.drafts += Drafts(event.num_drafted, int(event.was_drafted))
        entry = event.logprobs
        logprob = None if entry is None else token_logprob(self._model.tokenizer, entry)
        events: list[Event] = list(choice.pipeline.feed(event.token_id, logprob))
        if self.prepared.request.time_tokens:
            _time(choice, events)
        if choice.pipeline.is_stopped:
            self._model.engine.abort(choice.request.id, keep_tokens=choice.pipeline.num_tokens)
            events.append(_told(choice, "stop"))
        return events

    def _on_finished(self, choice: _Choice, event: Finished) -> Sequence[Event]:
        choice.end = event
        if choice.is_told:
            return ()
        pipeline = choice.pipeline
        events: list[Event] = list(pipeline.flush())
        # A stop string can also be completed by the text that only the end sets free.
        reason = "stop" if pipeline.is_stopped else self._reason(event, choice)
        events.append(_told(choice, reason))
        return events

    def _reason(self, event: Finished, choice: _Choice) -> FinishReason:
        if event.reason == "abort":
            return "cancel"
        if event.reason != "stop":
            return event.reason
        # A broken call must not look like one that can be answered.
        pipeline = choice.pipeline
        if 0 < pipeline.num_calls == pipeline.num_whole_calls:
            return "tool_calls"
        return "length" if self._cuts_a_call(choice) else "stop"

    def _cuts_a_call(self, choice: _Choice) -> bool:
        """True when a token of the request's own ended the choice in the middle of a call."""
        request, pipeline = self.prepared.request, choice.pipeline
        is_own = choice.last_id in request.stop_token_ids - self._model.tokenizer.eos_ids
        must_call = request.calls is not None and request.calls.is_forced
        return is_own and (must_call or pipeline.num_calls > 0)

    # --- counts --------------------------------------------------------------------------------

    def _usage(self) -> Usage:
        choices = list(self._choices.values())
        ends = [choice.end for choice in choices if choice.end is not None]
        stats = self._model.engine.stats()
        return Usage(
            prompt_tokens=sum(len(ids) for ids in self.prepared.prompt_ids),
            completion_tokens=sum(choice.pipeline.num_tokens for choice in choices),
            # The siblings of a prompt share its pages; only the first one tells what was cached.
            cached_tokens=sum(end.cached_tokens for end in ends[:: self.prepared.request.n]),
            reasoning_tokens=sum(choice.pipeline.num_reasoning_tokens for choice in choices),
            context_len=self._model.info.context_len,
            # Its own blocks are free by now; what the pool holds is what can be reused.
            active_kv_tokens=stats.active_kv_tokens + stats.cached_kv_tokens,
            max_kv_tokens=stats.max_kv_tokens,
            load_duration=self._model.load_duration,
            prefill_duration=max(end.prefill_duration for end in ends),
            decoding_duration=max(end.decoding_duration for end in ends),
            num_choices=len(choices),
            waiting_duration=min(end.waiting_duration for end in ends),
            drafts=sum(drafts, Drafts()) if (drafts := _drafts(choices)) else None,
            diverged_at=ends[0].diverged_at if len(self.prepared.prompt_ids) == 1 else None,
        )


def _pipeline(model: LoadedModel, prepared: Prepared, index: int) -> OutputPipeline:
    request = prepared.request
    return OutputPipeline(
        index=index,
        tokenizer=model.tokenizer,
        stops=request.stop,
        parser=model.make_parser(
            ReplyShape(
                prompt=prepared.rendered,
                tools=request.tools,
                continues=request.continue_final_message,
                may_reason=may_reason(model, request),
                only_calls=request.calls is not None and request.calls.is_forced,
            )
        ),
    )


def _drafts(choices: Sequence[_Choice]) -> list[Drafts]:
    return [choice.drafts for choice in choices if choice.drafts is not None]


def _told(choice: _Choice, reason: FinishReason) -> ChoiceDone:
    choice.is_told = True
    stop_string = choice.pipeline.stop_string if reason == "stop" else None
    return ChoiceDone(choice.pipeline.index, reason, stop_string)


def _progress(choice: _Choice, event: PromptProgress) -> ReadProgress:
    return ReadProgress(
        index=choice.pipeline.index,
        prompt_tokens=len(choice.request.prompt_ids),
        cached_tokens=event.cached_tokens,
        read_tokens=event.read_tokens,
        duration=event.duration,
    )


def _time(choice: _Choice, events: list[Event]) -> None:
    """Put into the last delta how long the choice took so far."""
    now = time.monotonic()
    if choice.first_at is None:
        choice.first_at = now
    last = events[-1] if events else None
    if isinstance(last, TextDelta | ToolCallDelta) and choice.read is not None:
        timings = Timings(
            prompt_tokens=len(choice.request.prompt_ids),
            cached_tokens=choice.read.cached_tokens,
            prefill_duration=choice.read.duration,
            completion_tokens=choice.pipeline.num_tokens,
            decoding_duration=now - choice.first_at,
            drafts=choice.drafts,
        )
        events[-1] = replace(last, timings=timings)


def _timings(choice: _Choice) -> Timings:
    assert choice.end is not None
    return Timings(
        prompt_tokens=len(choice.request.prompt_ids),
        cached_tokens=choice.end.cached_tokens,
        prefill_duration=choice.end.prefill_duration - choice.end.waiting_duration,
        completion_tokens=choice.pipeline.num_tokens,
        decoding_duration=choice.end.decoding_duration,
        drafts=choice.drafts,
    )


def _ended_by_failure(request: EngineRequest) -> Finished:
    return Finished(request.id, "abort", len(request.prompt_ids), 0, 0, 0.0, 0.0)
