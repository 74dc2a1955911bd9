"""The engine without a thread: one call, one step."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from flm.engine.drafts import Drafter
from flm.engine.masks import EARLY_S, EarlyMask, MaskMaker
from flm.engine.protocol import (
    CachedPrefix,
    EngineConfig,
    EngineEvent,
    EngineRequest,
    EngineStats,
    Logprobs,
)
from flm.engine.runner import Runner
from flm.engine.sampler import Turn, blamed_on, logprobs_of, next_tokens, without_numbers
from flm.engine.scheduler import Scheduler
from flm.engine.sequence import Sequence as EngineSequence
from flm.engine.step import StepPlan, StepResult
from flm.errors import InvalidRequestError, require_token_ids
from flm.kvcache.manager import KVCacheManager
from flm.log import logger
from flm.prefill.chunk import Chunk
from flm.sampling.batch import Sampled
from flm.sampling.draw import ModelRandom, RequestRandom
from flm.sampling.pipeline import Sampler

LOGPROB_ROWS = 64
"""Prompt log probabilities are taken of so many rows at a time; each needs a few more rows of
the size of the vocabulary."""

SHOWN_TOKENS = 16
"""Cached tokens that are told behind the place where a prompt leaves them."""


class Engine:
    """Plan, run, sample, settle. ``check``, ``new_sequence`` and the look-ups may be called from
    other threads (the first two one at a time); everything else belongs to one thread."""

    def __init__(
        self,
        runner: Runner,
        config: EngineConfig,
        *,
        random: ModelRandom | None = None,
        sampler: Sampler | None = None,
        vocab_size: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self._runner = runner
        self._random = ModelRandom(None) if random is None else random
        self._sampler = Sampler() if sampler is None else sampler
        self._vocab_size = vocab_size
        self._clock = clock
        self._num_arrivals = 0
        self._cache = KVCacheManager(config.num_blocks, config.block_size)
        self.scheduler = Scheduler(config, self._cache, clock=clock)
        self._masks = MaskMaker()
        # Held while the books change, never during a forward.
        self._books = threading.Lock()

    # --- from any thread -------------------------------------------------------------------

    @property
    def max_kv_tokens(self) -> int:
        """Positions the KV pool can hold."""
        return self._cache.max_tokens

    def check(self, request: EngineRequest) -> None:
        """Refuse a request that could never run.

        Raises:
            InvalidRequestError: no prompt, or token ids that the model does not have.
            ContextLengthError: it would not fit even with the pool to itself.
        """
        if not request.prompt_ids:
            raise InvalidRequestError("The prompt has no tokens.", param="prompt")
        if self._vocab_size is not None:
            require_token_ids(request.prompt_ids, self._vocab_size, param="prompt")
        self.scheduler.check_fits(request)

    def new_sequence(self, request: EngineRequest) -> EngineSequence:
        """The sequence of a request that arrives now; draws its seed where it needs one."""
        arrival = self._num_arrivals
        self._num_arrivals += 1
        return EngineSequence(
            request,
            arrival=arrival,
            submitted_at=self._clock(),
            random=self._generator(request),
            drafter=Drafter() if self.config.speculates else None,
        )

    def _generator(self, request: EngineRequest) -> RequestRandom | None:
        # Greedy decoding draws nothing, so it leaves the model's stream where it was.
        if request.sampling.is_greedy or request.max_new_tokens == 0:
            return None
        if request.seed is not None:
            return RequestRandom(request.seed)
        return RequestRandom(self._random.next_seed())

    def cached_prefix(self, prompt_ids: Sequence[int]) -> CachedPrefix:
        """What the prefix cache would give this prompt now. Changes nothing."""
        with self._books:
            length = self._cache.cached_prefix_len(prompt_ids)
            found = self._cache.divergence(prompt_ids, SHOWN_TOKENS)
        return CachedPrefix(length) if found is None else CachedPrefix(length, *found)

    def waiting_prompts(self) -> list[tuple[int, ...]]:
        """The prompts of the sequences that wait."""
        with self._books:
            return self.scheduler.waiting_prompts()

    def check_integrity(self) -> None:
        """Raise AssertionError if a block is leaked, shared wrongly, or indexed wrongly."""
        with self._books:
            self._cache.check_integrity()
            if self._cache.num_leases != len(self.scheduler.running):
                raise AssertionError(
                    f"{self._cache.num_leases} leases for {len(self.scheduler.running)} sequences"
                )

    def stats(self, *, alive: bool = True) -> EngineStats:
        """The state as it is now."""
        with self._books:
            return EngineStats(
                alive=alive,
                num_running=len(self.scheduler.running),
                num_waiting=len(self.scheduler.waiting),
                max_running=self.config.max_running,
                max_waiting=self.config.max_waiting,
                active_kv_tokens=self._cache.num_active_tokens,
                cached_kv_tokens=self._cache.num_cached_tokens,
                max_kv_tokens=self._cache.max_tokens,
                num_preemptions=self.scheduler.metrics.num_preemptions,
                running_ids=tuple(sequence.id for sequence in self.scheduler.running),
            )

    # --- from the engine's thread ----------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """True while a sequence runs or waits."""
        return self.scheduler.has_work

    def submit(self, request: EngineRequest) -> None:
        """Check a request and let it wait."""
        self.check(request)
        self.enqueue(self.new_sequence(request))

    def enqueue(self, sequence: EngineSequence) -> None:
        """Let a sequence of ``new_sequence`` wait."""
        with self._books:
            self.scheduler.add(sequence)

    def abort(self, request_id: str, keep_tokens: int | None = None) -> list[EngineEvent]:
        """End a sequence at any stage; the event that says so, or nothing for an unknown id."""
        with self._books:
            finished = self.scheduler.abort(request_id, keep_tokens)
        return [] if finished is None else [finished]

    def drop_all(self) -> tuple[str, ...]:
        """End every sequence without an event; their ids."""
        with self._books:
            return self.scheduler.drop_all()

    def unload(self) -> None:
        """Let go of the model and its KV cache, so that another may take their memory. No step
        can follow."""
        self._runner = _Unloaded()

    def step(self) -> list[EngineEvent]:
        """Compute one step; what came of it. Without work, nothing happens."""
        with self._books:
            plan = self.scheduler.plan()
        if plan.is_empty:
            return []
        self._log_chunks(plan)
        rows = plan.rows()
        turns = self._turns(plan, rows)
        with self._masks.making([turn.mask for turn in turns if turn.mask is not None]):
            logits = self._runner.forward(plan)
        result = self._sample(plan, rows, turns, logits)
        with self._books:
            return self.scheduler.settle(plan, result)

    def _log_chunks(self, plan: StepPlan) -> None:
        for chunk in plan.chunks:
            if chunk.mark is not None and self.config.log_prefill:
                # The line's form is documented, so the request stands beside it.
                logger.info("%s", chunk.mark, extra={"request_id": chunk.request_id})

    # --- sampling --------------------------------------------------------------------------

    @torch.inference_mode()
    def _sample(
        self, plan: StepPlan, rows: Mapping[str, range], turns: list[Turn], logits: Tensor
    ) -> StepResult:
        """What the rows of logits, [plan.num_rows, vocab], give to each sequence."""
        failures = without_numbers(rows, logits, self._sampler)
        for turn in tuple(turns):
            # A guess that nobody would say must not harm: its sequence goes on without guesses.
            if turn.drafts and failures.pop(turn.request_id, None) is not None:
                turns.remove(turn)
        prompts = {}
        for chunk in plan.chunks:
            if self.scheduler[chunk.request_id].wants_prompt_rows:
                own = rows[chunk.request_id]
                with blamed_on(chunk.request_id, failures):
                    prompts[chunk.request_id] = self._prompt_logprobs(
                        chunk, logits[own.start : own.stop]
                    )
        return StepResult(next_tokens(turns, logits, failures, self._sampler), prompts, failures)

    def _prompt_logprobs(self, chunk: Chunk, logits: Tensor) -> tuple[Logprobs, ...]:
        """Log probabilities of the prompt tokens after each of a chunk's rows, [T, vocab]."""
        request = self.scheduler[chunk.request_id].request
        num_top = 0 if request.num_logprobs is None else request.num_logprobs
        # The prompt's last row is followed by no prompt token.
        targets = request.prompt_ids[chunk.start + 1 : chunk.start + len(chunk.token_ids) + 1]
        found: list[Sampled] = []
        for at in range(0, len(targets), LOGPROB_ROWS):
            part = targets[at : at + LOGPROB_ROWS]
            found += self._sampler.logprobs(logits[at : at + len(part)], part, num_top)
        return tuple(logprobs_of(entry) for entry in found)

    def _turns(self, plan: StepPlan, rows: Mapping[str, range]) -> list[Turn]:
        """Who samples, from the row of its last known token on."""
        turns = [
            _turn(self.scheduler[row.request_id], rows[row.request_id][0], row.drafts)
            for row in plan.decodes
        ]
        for chunk in plan.chunks:
            sequence = self.scheduler[chunk.request_id]
            end = chunk.start + len(chunk.token_ids)
            if sequence.wants_token and end == sequence.prefill_end:
                turns.append(_turn(sequence, rows[chunk.request_id][-1]))
        return turns


def _turn(sequence: EngineSequence, row: int, drafts: tuple[int, ...] = ()) -> Turn:
    grammar = sequence.request.grammar
    if grammar is None or sequence.mask_s < EARLY_S:
        return Turn(sequence, row, drafts)
    return Turn(sequence, row, drafts, EarlyMask(grammar))


class _Unloaded:
    """Stands where the model was."""

    def forward(self, plan: StepPlan) -> Tensor:  # noqa: ARG002
        """Refuse."""
        raise AssertionError("the model has been unloaded")
