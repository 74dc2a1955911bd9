"""What crosses between the engine and the rest: ids in, ids out, no text, no HTTP, no torch.

The engine runs in its own thread; these values are all that it shares. Another process or
machine could stand behind the same protocol.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from flm.errors import FlmError
from flm.types import SamplingParams

EngineFinish = Literal["stop", "length", "abort"]


class Grammar(Protocol):
    """A constraint on the next token, advanced by every token the request accepts. Its methods
    are called from several threads, one at a time."""

    def mask(self) -> bytes | None:
        """The allowed tokens as a little-endian bit set over the vocabulary; None: all allowed."""

    def accept(self, token_id: int) -> None:
        """Advance past a sampled token."""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One sequence to generate. A request with n choices is n of these.

    ``seed`` is None or in 0..2^64-1. ``max_new_tokens`` is at least 1, or 0 to read the prompt
    only; prompt plus new tokens fit the context (the service saw to it). ``eos_ids`` end the
    sequence with reason ``stop`` once ``min_new_tokens`` are there, and until then cannot be
    sampled; ``banned_ids`` never can. ``num_logprobs`` is the number of alternatives wanted beside
    the sampled token (None: no log probabilities). With ``prompt_logprobs`` every prompt position
    is reported too, with ``report_progress`` every slice of the prompt that was read.
    """

    id: str
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    max_new_tokens: int
    seed: int | None = None
    min_new_tokens: int = 0
    eos_ids: frozenset[int] = frozenset()
    logit_bias: tuple[tuple[int, float], ...] = ()
    banned_ids: tuple[int, ...] = ()
    num_logprobs: int | None = None
    prompt_logprobs: bool = False
    report_progress: bool = False
    cache_prompt: bool = True
    grammar: Grammar | None = None


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Log probabilities at one position: of the token itself and of the best alternatives.

    Taken from the raw logits, before bias, penalties, grammar and temperature.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """A slice of the prompt was read: ``read_tokens`` are in the cache now, the first
    ``cached_tokens`` of them were before. ``duration`` is in seconds since reading began."""

    request_id: str
    read_tokens: int
    cached_tokens: int
    duration: float


@dataclass(frozen=True, slots=True)
class PromptRead:
    """The prompt is in the cache. ``logprobs`` (when asked for) has one entry per prompt token;
    the first is None. ``duration`` is in seconds since reading began."""

    request_id: str
    cached_tokens: int
    logprobs: tuple[Logprobs | None, ...] = ()
    duration: float = 0.0


@dataclass(frozen=True, slots=True)
class TokenOut:
    """One sampled token, an end-of-sequence token included.

    ``was_drafted`` is True for one that was guessed before it was sampled. The first token of a
    step says in ``num_drafted`` how many guesses were computed in that step.
    """

    request_id: str
    token_id: int
    logprobs: Logprobs | None = None
    num_drafted: int = 0
    was_drafted: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """The sequence is done; nothing of it follows. Durations are in seconds.

    ``prefill_duration`` runs from submission to the first token; the first
    ``waiting_duration`` of it passed before the sequence began to run. ``diverged_at`` is the index
    of the prompt's token at which it left what else was cached, if it did.
    """

    request_id: str
    reason: EngineFinish
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    prefill_duration: float
    decoding_duration: float
    waiting_duration: float = 0.0
    diverged_at: int | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The sequence ended by an error; nothing of it follows."""

    request_id: str
    error: FlmError


EngineEvent = PromptProgress | PromptRead | TokenOut | Finished | Failed
Sink = Callable[[EngineEvent], None]
"""Receives the events of one submission, called from the engine's thread; must not block."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A glance at the engine. Token counts are KV positions; ``running_ids`` are the sequences that
    run, in order of arrival."""

    alive: bool
    num_running: int
    num_waiting: int
    max_running: int
    max_waiting: int
    active_kv_tokens: int
    cached_kv_tokens: int
    max_kv_tokens: int
    num_preemptions: int
    running_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CachedPrefix:
    """What the prefix cache would give a prompt: its first ``length`` tokens.

    Where the cache goes on otherwise than the prompt, ``diverged_at`` is the index of the first
    token that differs and ``cached_ids`` are the cached tokens from there on, a few of them.
    """

    length: int
    diverged_at: int | None = None
    cached_ids: tuple[int, ...] = ()


class EngineClient(Protocol):
    """The engine as the service sees it. Every method may be called from any thread."""

    @property
    def max_kv_tokens(self) -> int:
        """Positions the KV pool can hold: the longest sequence it can ever run."""

    def submit(
        self,
        requests: Sequence[EngineRequest],
        sink: Sink,
        *,
        on_admit: Callable[[], None] | None = None,
    ) -> None:
        """Queue all of ``requests`` or none.

        ``on_admit`` runs under the same lock once there is room and before anything is queued, so
        that what it writes is ordered as the requests are; an exception from it queues nothing.

        Raises:
            QueueFullError: the waiting line has no room for all of them, or for their prompts
                beside those that wait.
            EngineDeadError: the engine thread has ended.
            ShuttingDownError: ``close`` was called.
        """

    def abort(self, request_id: str, *, keep_tokens: int | None = None) -> None:
        """End a sequence: its client is gone, or a stop string matched.

        With ``keep_tokens`` only the prompt and that many generated tokens stay in the cache.
        An unknown or finished id is ignored. A ``Finished`` with reason ``abort`` is still sent.
        """

    def cached_prefix(self, prompt_ids: Sequence[int]) -> CachedPrefix:
        """What the prefix cache would give this prompt now. Changes nothing."""

    def stats(self) -> EngineStats:
        """The state at the end of the last step."""

    def check_integrity(self) -> None:
        """Raise AssertionError if a block is leaked, shared wrongly, or indexed wrongly."""

    def close(self, *, timeout: float = 10.0) -> None:
        """End the thread. Sequences still there get ``Failed(ShuttingDownError)``."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Limits of the engine. Lengths and budgets are in tokens.

    ``slice_len`` bounds how much of a chunk runs between two decode steps of the others.
    ``speculates`` lets sequences guess ahead, which changes no token only where a row's logits are
    the same bits in any forward.
    ``max_waiting_tokens`` bounds the prompts of those that wait (None: no bound).
    """

    chunk_len: int = 4096
    slice_len: int = 512
    max_running: int = 16
    max_waiting: int = 64
    max_waiting_tokens: int | None = None
    block_size: int = 32
    num_blocks: int = 512
    log_prefill: bool = field(default=True)
    speculates: bool = False
