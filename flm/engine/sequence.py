"""One sequence on its way through the engine."""

from collections.abc import Collection
from dataclasses import dataclass

from flm.engine.drafts import Drafter
from flm.engine.protocol import EngineFinish, EngineRequest, Finished, Logprobs
from flm.kvcache.manager import Lease
from flm.prefill.plan import PrefillSpan
from flm.sampling.draw import RequestRandom
from flm.sampling.window import Window


@dataclass(frozen=True, slots=True)
class Deferral:
    """A reason to wait: ``leader`` is reading a prefix that this sequence shares, ``until`` that
    many tokens."""

    leader: "Sequence"
    until: int

    @property
    def is_over(self) -> bool:
        """True when the prefix is in the cache, or nobody is bringing it there any more."""
        leader = self.leader
        return not leader.is_prefilling or leader.num_computed >= self.until


class Sequence:
    """The mutable state of a sequence: its tokens, what is computed of them, and its randomness.

    ``token_ids`` are the prompt and what was generated; the first ``num_computed`` of them have
    keys and values in the blocks of ``lease``, which it has only while it runs. Since its last
    admission it reads ``prefill_start`` to ``prefill_end`` as prompt (after a preemption that
    includes generated tokens). ``num_cached``, ``diverged_at`` and the window's start are those of
    the first admission, whatever happens later; so is ``started_at``. ``mask_s`` is how long its
    grammar's last mask took, in seconds.
    """

    __slots__ = (
        "arrival",
        "deferral",
        "diverged_at",
        "drafter",
        "first_token_at",
        "last_token_at",
        "lease",
        "mask_s",
        "num_cached",
        "num_computed",
        "prefill_end",
        "prefill_start",
        "prompt_logprobs",
        "prompt_was_read",
        "random",
        "request",
        "started_at",
        "submitted_at",
        "token_ids",
        "was_admitted",
        "window",
    )

    def __init__(
        self,
        request: EngineRequest,
        *,
        arrival: int,
        submitted_at: float,
        random: RequestRandom | None,
        drafter: Drafter | None = None,
    ) -> None:
        self.request = request
        self.arrival = arrival
        self.submitted_at = submitted_at
        self.started_at: float | None = None
        self.random = random
        self.drafter = drafter
        self.token_ids = list(request.prompt_ids)
        self.num_computed = 0
        self.lease: Lease | None = None
        self.prefill_start = 0
        self.prefill_end = 0
        self.num_cached = 0
        self.diverged_at: int | None = None
        self.was_admitted = False
        self.deferral: Deferral | None = None
        self.mask_s = 0.0
        self.window = Window(request.sampling.repeat_last_n)
        self.prompt_was_read = False
        self.prompt_logprobs: list[Logprobs | None] = [None]
        self.first_token_at: float | None = None
        self.last_token_at: float | None = None

    # --- derived ---------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The request's id."""
        return self.request.id

    @property
    def prompt_len(self) -> int:
        """Tokens of the prompt."""
        return len(self.request.prompt_ids)

    @property
    def num_generated(self) -> int:
        """Tokens sampled so far."""
        return len(self.token_ids) - len(self.request.prompt_ids)

    @property
    def is_prefilling(self) -> bool:
        """True while it runs and has not caught up with the tokens it was admitted with."""
        return self.lease is not None and self.num_computed < self.prefill_end

    @property
    def prefill(self) -> PrefillSpan:
        """What it reads as prompt since its last admission."""
        return PrefillSpan(self.prefill_start, self.num_computed, self.prefill_end)

    @property
    def wants_prompt_rows(self) -> bool:
        """True while the logits of every prompt position are needed."""
        return self.request.prompt_logprobs and not self.prompt_was_read

    @property
    def wants_token(self) -> bool:
        """True when the next token is to be sampled once all known ones are computed."""
        return self.num_generated < self.request.max_new_tokens

    @property
    def reads_cache(self) -> bool:
        """True when cached blocks may stand in for computing."""
        return self.request.cache_prompt and not self.wants_prompt_rows

    # What the sampler asks while a step gives several tokens: ``ahead`` are those that it has
    # chosen and that have not been appended yet.

    def window_after(self, ahead: Collection[int] = ()) -> Window:
        """The tokens that the penalties look at. Without ``ahead`` it is the sequence's own."""
        return self.window.after(ahead) if ahead else self.window

    def banned_after(self, num_ahead: int = 0) -> tuple[int, ...]:
        """Tokens that may not be sampled next: some never, others would end it too early."""
        banned_ids = self.request.banned_ids
        if self.num_generated + num_ahead >= self.request.min_new_tokens:
            return banned_ids
        return (*banned_ids, *self.request.eos_ids)

    def end_with(self, token_id: int, num_ahead: int = 0) -> EngineFinish | None:
        """The reason to stop, if this next token is the last one."""
        num_before = self.num_generated + num_ahead
        if token_id in self.request.eos_ids and num_before >= self.request.min_new_tokens:
            return "stop"
        return None if num_before + 1 < self.request.max_new_tokens else "length"

    # --- changes ---------------------------------------------------------------------------

    def admit(self, lease: Lease, at: float) -> None:
        """Begin to run with these blocks, at time ``at``, from the first token they do not hold."""
        self.lease = lease
        self.deferral = None
        self.prefill_start = self.num_computed = lease.num_cached
        self.prefill_end = len(self.token_ids)
        if self.wants_prompt_rows:
            self.prompt_logprobs = [None]
        if not self.was_admitted:
            self.num_cached = lease.num_cached
            self.diverged_at = lease.diverged_at
            self.started_at = at
            self.was_admitted = True

    def suspend(self) -> None:
        """Stop running; everything but the computed values stays. The lease ends elsewhere."""
        self.lease = None
        self.num_computed = self.prefill_start = self.prefill_end = 0

    def append(self, token_id: int, at: float) -> EngineFinish | None:
        """Take a sampled token; the reason to stop, if it is the last one."""
        reason = self.end_with(token_id)
        self.token_ids.append(token_id)
        self.window.append(token_id)
        self.last_token_at = at
        if self.first_token_at is None:
            self.first_token_at = at
        return reason

    def draft(self, max_len: int) -> tuple[int, ...]:
        """At most ``max_len`` guesses at the tokens that follow, never as many as it may still
        sample: the last token is followed by none."""
        if self.drafter is None:
            return ()
        left = self.request.max_new_tokens - self.num_generated - 1
        return self.drafter.draft(self.token_ids, min(max_len, left))

    def reading_duration(self, at: float) -> float:
        """Seconds from its first admission to ``at``."""
        return 0.0 if self.started_at is None else at - self.started_at

    def finished(self, reason: EngineFinish, at: float, num_kept: int | None = None) -> Finished:
        """The closing event, at time ``at``; ``num_kept`` bounds the generated tokens counted."""
        first = at if self.first_token_at is None else self.first_token_at
        last = first if self.last_token_at is None else self.last_token_at
        started = first if self.started_at is None else self.started_at
        counted = self.num_generated if num_kept is None else min(self.num_generated, num_kept)
        return Finished(
            request_id=self.id,
            reason=reason,
            prompt_tokens=self.prompt_len,
            completion_tokens=counted,
            cached_tokens=self.num_cached,
            prefill_duration=first - self.submitted_at,
            decoding_duration=last - first,
            waiting_duration=started - self.submitted_at,
            diverged_at=self.diverged_at,
        )
