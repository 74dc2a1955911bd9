"""The engine without a thread: one call, one step."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from flm.engine.protocol import (
    EngineConfig,
    EngineEvent,
    EngineRequest,
    EngineStats,
    Logprobs,
    TokenOut,
)
from flm.engine.runner import Runner
from flm.engine.scheduler import Scheduler
from flm.engine.sequence import Sequence as EngineSequence
from flm.engine.step import StepPlan, StepResult
from flm.errors import FlmError, InternalError, InvalidRequestError, require_token_ids
from flm.kvcache.manager import KVCacheManager
from flm.log import logger
from flm.prefill.chunk import Chunk
from flm.sampling.batch import NO_TOKEN, Sampled, SamplingRow
from flm.sampling.draw import ModelRandom, RequestRandom
from flm.sampling.logprobs import token_logprobs
from flm.sampling.pipeline import Sampler

LOGPROB_ROWS = 64
"""Prompt log probabilities are taken of so many rows at a time; each needs a few more rows of
the size of the vocabulary."""


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
        )

    def _generator(self, request: EngineRequest) -> RequestRandom | None:
        # Greedy decoding draws nothing, so it leaves the model's stream where it was.
        if request.sampling.is_greedy or request.max_new_tokens == 0:
            return None
        if request.seed is not None:
            return RequestRandom(request.seed)
        return RequestRandom(self._random.next_seed())

    def cached_prefix_len(self, prompt_ids: Sequence[int]) -> int:
        """Tokens of this prompt that the prefix cache would give now. Changes nothing."""
        with self._books:
            return self._cache.cached_prefix_len(prompt_ids)

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
        result = self._sample(plan, self._runner.forward(plan))
        with self._books:
            return self.scheduler.settle(plan, result)

    def _log_chunks(self, plan: StepPlan) -> None:
        for chunk in plan.chunks:
            if chunk.mark is not None and self.config.log_prefill:
                # The line's form is documented, so the request stands beside it.
                logger.info("%s", chunk.mark, extra={"request_id": chunk.request_id})

    # --- sampling --------------------------------------------------------------------------

    @torch.inference_mode()
    def _sample(self, plan: StepPlan, logits: Tensor) -> StepResult:
        """What the rows of logits, [plan.num_rows, vocab], give to each sequence."""
        rows = plan.rows()
        failures = _without_numbers(rows, logits, self._sampler)
        prompts = {}
        for chunk in plan.chunks:
            if self.scheduler[chunk.request_id].wants_prompt_rows:
                own = rows[chunk.request_id]
                with _blamed_on(chunk.request_id, failures):
                    prompts[chunk.request_id] = self._prompt_logprobs(
                        chunk, logits[own.start : own.stop]
                    )
        tokens = self._next_tokens(self._sampled_rows(plan, rows), logits, failures)
        return StepResult(tokens, prompts, failures)

    def _prompt_logprobs(self, chunk: Chunk, logits: Tensor) -> tuple[Logprobs, ...]:
        """Log probabilities of the prompt tokens after each of a chunk's rows, [T, vocab]."""
        request = self.scheduler[chunk.request_id].request
        num_top = 0 if request.num_logprobs is None else request.num_logprobs
        # The prompt's last row is followed by no prompt token.
        targets = request.prompt_ids[chunk.start + 1 : chunk.start + len(chunk.token_ids) + 1]
        found: list[Sampled] = []
        for at in range(0, len(targets), LOGPROB_ROWS):
            part = targets[at : at + LOGPROB_ROWS]
            found += token_logprobs(logits[at : at + len(part)], part, num_top)
        return tuple(_logprobs(entry) for entry in found)

    def _sampled_rows(self, plan: StepPlan, rows: Mapping[str, range]) -> dict[str, int]:
        """The row from which each sequence samples: the one of its last known token."""
        places = {row.request_id: rows[row.request_id][-1] for row in plan.decodes}
        for chunk in plan.chunks:
            sequence = self.scheduler[chunk.request_id]
            end = chunk.start + len(chunk.token_ids)
            if sequence.wants_token and end == sequence.prefill_end:
                places[chunk.request_id] = rows[chunk.request_id][-1]
        return places

    def _next_tokens(
        self, places: Mapping[str, int], logits: Tensor, failures: dict[str, FlmError]
    ) -> dict[str, TokenOut]:
        described: dict[str, SamplingRow] = {}
        for request_id in places:
            with _blamed_on(request_id, failures):
                described[request_id] = _sampling_row(
                    self.scheduler[request_id], vocab_size=logits.shape[1]
                )
        if not described:
            return {}
        wanted = [places[request_id] for request_id in described]
        if wanted != list(range(len(logits))):
            logits = logits[wanted]
        tokens: dict[str, TokenOut] = {}
        for request_id, sampled in _sample_each(logits, described, failures, self._sampler).items():
            with _blamed_on(request_id, failures):
                tokens[request_id] = self._accept(request_id, sampled)
        return tokens

    def _accept(self, request_id: str, sampled: Sampled) -> TokenOut:
        request = self.scheduler[request_id].request
        if sampled.token_id == NO_TOKEN:
            raise InvalidRequestError(
                "No token can follow: the grammar, min_tokens, the stop tokens and logit_bias "
                "together rule out all of them. Loosen one of these."
            )
        if request.grammar is not None:
            request.grammar.accept(sampled.token_id)
        wants_logprobs = request.num_logprobs is not None
        return TokenOut(
            request_id, sampled.token_id, _logprobs(sampled) if wants_logprobs else None
        )


class _Unloaded:
    """Stands where the model was."""

    def forward(self, plan: StepPlan) -> Tensor:  # noqa: ARG002
        """Refuse."""
        raise AssertionError("the model has been unloaded")


def _sampling_row(sequence: EngineSequence, vocab_size: int) -> SamplingRow:
    """How to sample a sequence's next token. Advances its generator unless it is greedy."""
    request = sequence.request
    return SamplingRow(
        params=request.sampling,
        window=tuple(sequence.window) if request.sampling.has_penalties else (),
        uniform=None if sequence.random is None else sequence.random.next_uniform(),
        mask=None if request.grammar is None else request.grammar.mask(),
        # A tokenizer may name end tokens that the model has no logits for.
        banned_ids=tuple(token for token in sequence.banned_ids if token < vocab_size),
        logit_bias=request.logit_bias,
        num_logprobs=request.num_logprobs,
    )


def _sample_each(
    logits: Tensor,
    rows: Mapping[str, SamplingRow],
    failures: dict[str, FlmError],
    sampler: Sampler,
) -> dict[str, Sampled]:
    """Sample all rows, [B, vocab], at once; if that fails, one by one to find the culprit."""
    try:
        return dict(zip(rows, sampler.sample(logits, list(rows.values())), strict=True))
    except Exception:  # noqa: BLE001
        logger.exception("Sampling failed for %s; trying each alone.", ", ".join(rows))
    found: dict[str, Sampled] = {}
    for place, (request_id, row) in enumerate(rows.items()):
        with _blamed_on(request_id, failures):
            found[request_id] = sampler.sample(logits[place : place + 1], [row])[0]
    return found


def _without_numbers(
    rows: Mapping[str, range], logits: Tensor, sampler: Sampler
) -> dict[str, FlmError]:
    """The requests with a NaN or a positive infinity among their logits, [num_rows, vocab]."""
    fine = sampler.are_numbers(logits)
    if all(fine):
        return {}
    found: dict[str, FlmError] = {}
    for request_id, own in rows.items():
        if not all(fine[own.start : own.stop]):
            logger.error("The model gave logits that are not numbers for %s", request_id)
            found[request_id] = InternalError(
                "The model gave values that are not numbers for this request. Try --dtype float32; "
                "if that does not help, the model's files may be damaged."
            )
    return found


@contextmanager
def _blamed_on(request_id: str, failures: dict[str, FlmError]) -> Iterator[None]:
    """Turn an exception into the failure of one request, which keeps its first one."""
    try:
        yield
    except FlmError as error:
        logger.warning("Request %s failed: %s", request_id, error)
        failures.setdefault(request_id, error)
    except Exception:  # noqa: BLE001
        logger.exception("Request %s failed", request_id)
        failures.setdefault(
            request_id,
            InternalError("This request failed inside the engine; see the server's log."),
        )


def _logprobs(entry: Sampled) -> Logprobs:
    assert entry.logprob is not None
    return Logprobs(entry.token_id, entry.logprob, entry.top)
