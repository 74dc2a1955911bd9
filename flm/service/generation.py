"""One admitted request: the engine's events in, the reply's events out."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from flm.engine.protocol import (
    EngineEvent,
    EngineRequest,
    Failed,
    Finished,
    PromptRead,
    TokenOut,
)
from flm.service.echo import prompt_echo, token_logprob
from flm.service.models import LoadedModel, Prepared
from flm.service.thinking import may_reason
from flm.sticky import Snapshot
from flm.text.parsers import ReplyShape
from flm.text.pipeline import OutputPipeline
from flm.types import ChoiceDone, Event, FinishReason, RequestDone, Usage


@dataclass(slots=True, eq=False)
class _Choice:
    """One sequence of the request, as far as it has come."""

    request: EngineRequest
    pipeline: OutputPipeline
    is_told: bool = False
    read: PromptRead | None = None
    end: Finished | None = None


class Generation:
    """The reply in the making. Created on the event loop that reads it.

    ``snapshot`` are the settings frozen at admission.
    """

    def __init__(
        self,
        model: LoadedModel,
        prepared: Prepared,
        requests: Sequence[EngineRequest],
        snapshot: Snapshot,
    ) -> None:
        self.snapshot = snapshot
        self.prepared = prepared
        self._model = model
        self._choices = {
            request.id: _Choice(request, _pipeline(model, prepared, index))
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
        for choice in self._choices.values():
            if choice.end is None:
                self._model.engine.abort(choice.request.id)

    async def events(self) -> AsyncIterator[Event]:
        """The events of the reply, in order (see ``flm.types.Event``).

        Leaving the iteration early cancels the request.

        Raises:
            FlmError: the engine could not finish the request.
        """
        try:
            while any(choice.end is None for choice in self._choices.values()):
                for event in self._translate(await self._inbox.get()):
                    yield event
            yield RequestDone(self._usage())
        finally:
            self.cancel()

    # --- from engine events to reply events ----------------------------------------------------

    def _translate(self, event: EngineEvent) -> Sequence[Event]:
        choice = self._choices[event.request_id]
        if isinstance(event, TokenOut):
            return self._on_token(choice, event)
        if isinstance(event, PromptRead):
            return self._on_prompt(choice, event)
        if isinstance(event, Finished):
            return self._on_finished(choice, event)
        assert isinstance(event, Failed)
        choice.end = _ended_by_failure(choice.request)
        raise event.error

    def _on_prompt(self, choice: _Choice, event: PromptRead) -> Sequence[Event]:
        choice.read = event
        if not self.prepared.request.echo:
            return ()
        echo = prompt_echo(
            self._model.tokenizer,
            choice.pipeline.index,
            choice.request.prompt_ids,
            event.logprobs,
        )
        return (echo,)

    def _on_token(self, choice: _Choice, event: TokenOut) -> Sequence[Event]:
        if choice.is_told:
            return ()
        entry = event.logprobs
        logprob = None if entry is None else token_logprob(self._model.tokenizer, entry)
        events: deque[Event] = deque(choice.pipeline.feed(event.token_id, logprob))
        if choice.pipeline.is_stopped:
            self._model.engine.abort(choice.request.id, keep_tokens=choice.pipeline.num_tokens)
            events.append(_told(choice, "stop"))
        return events

    def _on_finished(self, choice: _Choice, event: Finished) -> Sequence[Event]:
        choice.end = event
        if choice.is_told:
            return ()
        pipeline = choice.pipeline
        events: deque[Event] = deque(pipeline.flush())
        # A stop string can also be completed by the text that only the end sets free.
        reason = "stop" if pipeline.is_stopped else _reason(event, pipeline)
        events.append(_told(choice, reason))
        return events

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


def _told(choice: _Choice, reason: FinishReason) -> ChoiceDone:
    choice.is_told = True
    return ChoiceDone(choice.pipeline.index, reason)


def _reason(event: Finished, pipeline: OutputPipeline) -> FinishReason:
    if event.reason == "abort":
        return "cancel"
    # A broken call must not look like one that can be answered.
    has_calls = 0 < pipeline.num_calls == pipeline.num_whole_calls
    return "tool_calls" if has_calls and event.reason == "stop" else event.reason


def _ended_by_failure(request: EngineRequest) -> Finished:
    return Finished(request.id, "abort", len(request.prompt_ids), 0, 0, 0.0, 0.0)
