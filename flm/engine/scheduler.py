"""Decides what each step computes, and takes in what came of it. Pure policy, no tensors.

There is no prefill phase and no decode phase. Every running sequence has computed tokens that
catch up with its known tokens: by one when it decodes, by a slice when it reads a prompt. Each
step carries the decode row of every sequence that has caught up, and prompt slices up to a
budget, so a long prompt never silences the others for longer than a slice.
"""

import time
from bisect import insort
from collections.abc import Callable
from typing import NamedTuple

from flm.engine.deferral import find_deferral
from flm.engine.drafts import MAX_DRAFT_ROWS
from flm.engine.metrics import EngineMetrics
from flm.engine.protocol import (
    EngineConfig,
    EngineEvent,
    EngineFinish,
    EngineRequest,
    Failed,
    Finished,
    PromptProgress,
    PromptRead,
    TokenOut,
)
from flm.engine.queue import WaitingLine
from flm.engine.sequence import Sequence
from flm.engine.step import DecodeRow, StepPlan, StepResult
from flm.errors import ContextLengthError, FlmError
from flm.kvcache.manager import KVCacheManager, Lease
from flm.log import logger
from flm.prefill.chunk import Chunk
from flm.prefill.plan import chunk_mark, share_budget


class _Blocked(NamedTuple):
    """The head of the line did not fit while so many blocks were available."""

    sequence: Sequence
    num_available: int


class Scheduler:
    """The waiting line, the running sequences and their blocks.

    ``running`` is in order of arrival. When the pool is full, the latest to arrive gives its
    blocks back and waits at the front; the oldest is never asked, so it always ends, and so
    does everything after it.
    """

    def __init__(
        self,
        config: EngineConfig,
        cache: KVCacheManager,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.cache = cache
        self.waiting = WaitingLine()
        self.running: list[Sequence] = []
        self.metrics = EngineMetrics()
        self._clock = clock
        self._by_id: dict[str, Sequence] = {}
        self._blocked: _Blocked | None = None

    @property
    def has_work(self) -> bool:
        """True while a sequence runs or waits."""
        return bool(self._by_id)

    def waiting_prompts(self) -> list[tuple[int, ...]]:
        """The prompts of the sequences that wait."""
        return [sequence.request.prompt_ids for sequence in self.waiting]

    def __getitem__(self, request_id: str) -> Sequence:
        return self._by_id[request_id]

    # --- coming and going ------------------------------------------------------------------

    def check_fits(self, request: EngineRequest) -> None:
        """Refuse what could not run even with the pool to itself.

        Raises:
            ContextLengthError: the pool is smaller than the prompt and what may be generated.
        """
        # The last token is never computed: nothing follows it.
        needed = len(request.prompt_ids) + max(request.max_new_tokens - 1, 0)
        if needed > self.cache.max_tokens:
            raise ContextLengthError(
                f"This request needs room for {needed} tokens and the KV cache holds "
                f"{self.cache.max_tokens}. Ask for fewer tokens, shorten the prompt, or start the "
                "server with a larger --kv-tokens."
            )

    def add(self, sequence: Sequence) -> None:
        """Let a sequence that fits join the waiting line."""
        assert sequence.id not in self._by_id, f"{sequence.id} is here already"
        self._by_id[sequence.id] = sequence
        self.waiting.append(sequence)

    def abort(self, request_id: str, keep_tokens: int | None = None) -> Finished | None:
        """End a sequence at any stage; only the prompt and ``keep_tokens`` generated tokens stay
        in the cache. None if there is no such sequence."""
        sequence = self._by_id.get(request_id)
        if sequence is None:
            return None
        num_kept = None if keep_tokens is None else max(keep_tokens, 0)
        return self._finish(sequence, "abort", num_kept)

    def drop_all(self) -> tuple[str, ...]:
        """End every sequence without an event; their ids. Nothing of them enters the index."""
        ids = tuple(self._by_id)
        for sequence in tuple(self._by_id.values()):
            self._remove(sequence)
            if sequence.lease is not None:
                self.cache.discard(sequence.lease)
                sequence.suspend()
        return ids

    def _finish(
        self, sequence: Sequence, reason: EngineFinish, num_kept: int | None = None
    ) -> Finished:
        self._remove(sequence)
        if sequence.lease is not None:
            kept = sequence.num_generated if num_kept is None else num_kept
            num_valid = min(sequence.num_computed, sequence.prompt_len + kept)
            self.cache.commit(
                sequence.lease, sequence.token_ids, num_valid, prompt_len=sequence.prompt_len
            )
            if num_valid >= sequence.prompt_len:
                known = sequence.token_ids[: sequence.prompt_len + kept]
                self.cache.note_ending(sequence.lease, known, prompt_len=sequence.prompt_len)
            self.cache.release(sequence.lease)
            sequence.suspend()
        self.metrics.num_finished[reason] += 1
        return sequence.finished(reason, self._clock(), num_kept)

    def _fail(self, sequence: Sequence, error: FlmError) -> Failed:
        self._remove(sequence)
        if sequence.lease is not None:
            self.cache.discard(sequence.lease)
            sequence.suspend()
        self.metrics.num_failed += 1
        return Failed(sequence.id, error)

    def _remove(self, sequence: Sequence) -> None:
        del self._by_id[sequence.id]
        if sequence.lease is None:
            self.waiting.remove(sequence)
        else:
            self.running.remove(sequence)

    # --- plan ------------------------------------------------------------------------------

    def plan(self) -> StepPlan:
        """Decide the next step: reserves its blocks, admits and preempts. Must be followed by
        ``settle`` with the same plan before the next one, unless it is empty."""
        num_preemptions = self.metrics.num_preemptions
        decodes = self._plan_decodes()
        if self.metrics.num_preemptions == num_preemptions:
            self._admit()
        plan = StepPlan(decodes, self._plan_chunks())
        assert not plan.is_empty or not self.has_work, "sequences wait and none can run"
        return plan

    def _plan_decodes(self) -> tuple[DecodeRow, ...]:
        ready = []
        for sequence in tuple(self.running):
            if sequence.lease is None or sequence.is_prefilling:
                continue
            if self._grow(sequence, sequence.num_computed + 1):
                ready.append(sequence)
        # Equal shares: who guesses how much follows no other sequence's luck.
        max_drafts = MAX_DRAFT_ROWS // max(len(ready), 1)
        return tuple(self._decode_row(sequence, max_drafts) for sequence in ready)

    def _decode_row(self, sequence: Sequence, max_drafts: int) -> DecodeRow:
        lease = sequence.lease
        assert lease is not None
        position = sequence.num_computed
        drafts = sequence.draft(max_drafts)
        if drafts:
            num_covered = self.cache.reserve_free(lease, position + 1 + len(drafts))
            drafts = drafts[: num_covered - position - 1]
        return DecodeRow(
            sequence.id, sequence.token_ids[position], position, lease.table, drafts=drafts
        )

    def _grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Cover ``num_tokens`` positions, at the expense of later arrivals; False if the
        sequence was itself the latest and had to go."""
        while sequence.lease is not None:
            if self.cache.reserve(sequence.lease, num_tokens):
                return True
            self._preempt(self.running[-1])
        return False

    def _preempt(self, sequence: Sequence) -> None:
        assert sequence.lease is not None
        self.running.remove(sequence)
        self.cache.release(sequence.lease)
        sequence.suspend()
        self.waiting.return_to_front(sequence)
        self.metrics.num_preemptions += 1
        logger.debug("%s gives its blocks back and will be computed again", sequence.id)

    # --- admission -------------------------------------------------------------------------

    def _admit(self) -> None:
        if len(self.running) >= self.config.max_running or len(self.waiting) == 0:
            return
        for sequence in tuple(self.waiting):
            if len(self.running) >= self.config.max_running or self._is_blocked(sequence):
                return
            if self._is_deferred(sequence):
                continue
            if not self._start(sequence):
                self._blocked = _Blocked(sequence, self.cache.num_available)
                return

    def _is_blocked(self, sequence: Sequence) -> bool:
        """True when it did not fit before and nothing has been freed since."""
        blocked = self._blocked
        if blocked is None or blocked.sequence is not sequence or not self.running:
            return False
        return self.cache.num_available <= blocked.num_available

    def _start(self, sequence: Sequence) -> bool:
        lease = self.cache.open(
            sequence.token_ids, reads=sequence.reads_cache, shares=sequence.request.cache_prompt
        )
        # One block for each of the others to grow into, or this would soon be preempted again.
        spare = len(self.running)
        if not self.cache.reserve(lease, len(sequence.token_ids), spare=spare):
            self.cache.release(lease)
            return False
        if not sequence.was_admitted:
            self._begin_window(sequence, lease)
            self.metrics.num_cached_tokens += lease.num_cached
        self.waiting.remove(sequence)
        sequence.admit(lease, self._clock())
        insort(self.running, sequence, key=lambda item: item.arrival)
        return True

    def _begin_window(self, sequence: Sequence, lease: Lease) -> None:
        """Without a seed the window begins with the end of the reply that is continued."""
        if sequence.request.seed is None:
            tail = self.cache.last_generated_run(lease, sequence.window.max_len)
            sequence.window.extend(sequence.token_ids[tail.start : tail.stop])

    def _is_deferred(self, sequence: Sequence) -> bool:
        """True while another running sequence is reading a prefix that this one shares and the
        cache does not hold yet: waiting for it is cheaper than computing it twice."""
        if sequence.deferral is not None and not sequence.deferral.is_over:
            return True
        sequence.deferral = find_deferral(sequence, self.running, self.cache)
        return sequence.deferral is not None

    # --- prompts ---------------------------------------------------------------------------

    def _plan_chunks(self) -> tuple[Chunk, ...]:
        reading = [sequence for sequence in self.running if sequence.is_prefilling]
        lengths = share_budget(
            [sequence.prefill for sequence in reading],
            budget=self.config.slice_len,
            chunk_len=self.config.chunk_len,
            shortest_first=self.metrics.num_steps % 2 == 1,
        )
        pairs = zip(reading, lengths, strict=True)
        return tuple(self._chunk(sequence, length) for sequence, length in pairs if length > 0)

    def _chunk(self, sequence: Sequence, length: int) -> Chunk:
        assert sequence.lease is not None
        start = sequence.num_computed
        end = start + length
        if sequence.wants_prompt_rows:
            num_logits = length
        else:
            num_logits = int(end == sequence.prefill_end and sequence.wants_token)
        return Chunk(
            request_id=sequence.id,
            token_ids=tuple(sequence.token_ids[start:end]),
            start=start,
            block_table=sequence.lease.table,
            num_logits=num_logits,
            mark=chunk_mark(sequence.prefill, self.config.chunk_len),
        )

    # --- settle ----------------------------------------------------------------------------

    def settle(self, plan: StepPlan, result: StepResult) -> list[EngineEvent]:
        """Take in what a plan gave: the events it causes, in order for every sequence."""
        now = self._clock()
        events: list[EngineEvent] = []
        for row in plan.decodes:
            self._settle_decode(row, result, now, events)
        for chunk in plan.chunks:
            sequence = self._by_id[chunk.request_id]
            self.metrics.num_prefill_tokens += len(chunk.token_ids)
            self._settle_one(sequence, len(chunk.token_ids), result, now, events)
        self.metrics.num_steps += 1
        return events

    def _settle_decode(
        self, row: DecodeRow, result: StepResult, now: float, events: list[EngineEvent]
    ) -> None:
        sequence = self._by_id[row.request_id]
        # Each token was sampled from a row: the rows behind hold what nobody said.
        num_reached = len(result.tokens.get(sequence.id, ()))
        if row.drafts and sequence.drafter is not None:
            self.metrics.num_drafted_tokens += len(row.drafts)
            self.metrics.num_accepted_tokens += max(num_reached - 1, 0)
            if num_reached == 0:
                sequence.drafter.give_up()
            else:
                sequence.drafter.learn(len(row.drafts), num_reached - 1)
        self._settle_one(sequence, num_reached, result, now, events)

    def _settle_one(
        self,
        sequence: Sequence,
        num_tokens: int,
        result: StepResult,
        now: float,
        events: list[EngineEvent],
    ) -> None:
        error, tokens = result.failures.get(sequence.id), result.tokens.get(sequence.id, ())
        if error is not None:
            for token in tokens:
                self._settle_token(sequence, token, now, events)
            events.append(self._fail(sequence, error))
            return
        was_prefilling = sequence.is_prefilling
        sequence.num_computed += num_tokens
        if was_prefilling:
            self._commit_prompt(sequence)
        if not sequence.prompt_was_read:
            self._settle_prompt(sequence, result, now, events)
        for token in tokens:
            self._settle_token(sequence, token, now, events)
        if not tokens and sequence.prompt_was_read and not sequence.wants_token:
            events.append(self._finish(sequence, "length"))

    def _commit_prompt(self, sequence: Sequence) -> None:
        assert sequence.lease is not None
        num_read = min(sequence.num_computed, sequence.prompt_len)
        self.cache.commit(
            sequence.lease, sequence.token_ids, num_read, prompt_len=sequence.prompt_len
        )

    def _settle_prompt(
        self, sequence: Sequence, result: StepResult, now: float, events: list[EngineEvent]
    ) -> None:
        num_read, num_cached = min(sequence.num_computed, sequence.prompt_len), sequence.num_cached
        duration = sequence.reading_duration(now)
        if sequence.request.report_progress:
            events.append(PromptProgress(sequence.id, num_read, num_cached, duration))
        if sequence.request.prompt_logprobs:
            sequence.prompt_logprobs.extend(result.prompt_logprobs.get(sequence.id, ()))
        if sequence.num_computed < sequence.prompt_len:
            return
        sequence.prompt_was_read = True
        logprobs = tuple(sequence.prompt_logprobs) if sequence.request.prompt_logprobs else ()
        events.append(PromptRead(sequence.id, num_cached, logprobs, duration))

    def _settle_token(
        self, sequence: Sequence, token: TokenOut, now: float, events: list[EngineEvent]
    ) -> None:
        reason = sequence.append(token.token_id, now)
        self.metrics.num_generated_tokens += 1
        events.append(token)
        if reason is not None:
            events.append(self._finish(sequence, reason))
