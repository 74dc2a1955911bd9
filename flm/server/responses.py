"""Events become replies. A full reply is a fold of the same events that a stream sends."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from flm.adaptation import Adaptation
from flm.errors import FlmError
from flm.server.offsets import num_chars
from flm.server.timings import progress_dict, timings_dict
from flm.types import (
    ChoiceDone,
    Drafts,
    Event,
    FinishReason,
    PromptEcho,
    ReadProgress,
    RequestDone,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)


@dataclass(frozen=True, slots=True)
class ReplyHead:
    """What is known of a reply when the request is admitted. ``created`` is a Unix time. The
    timings come at the end, with ``with_token_timings`` in every chunk."""

    id: str
    model: str
    created: int
    prompt_ids: tuple[tuple[int, ...], ...]
    num_choices: int
    adaptations: tuple[Adaptation, ...] = ()
    with_logprobs: bool = False
    with_token_ids: bool = False
    with_usage: bool = False
    with_timings: bool = False
    with_token_timings: bool = False
    fingerprint: str = field(default_factory=lambda: f"fp_{secrets.token_hex(8)}")

    def extras(self) -> dict[str, Any]:
        """Top-level keys that only some replies have."""
        extras: dict[str, Any] = {}
        if self.with_token_ids and len(self.prompt_ids) == 1:
            extras["prompt_token_ids"] = self.prompt_ids[0]
        if self.adaptations:
            extras["adaptations"] = [entry.to_dict() for entry in self.adaptations]
        return extras

    def prompt_of(self, index: int) -> tuple[int, ...]:
        """Token ids of the prompt that choice ``index`` continues."""
        return self.prompt_ids[index * len(self.prompt_ids) // self.num_choices]


@dataclass(frozen=True, slots=True)
class CallPiece:
    """What was added to one tool call, or all of it. ``id`` and ``name`` stand where it begins."""

    index: int
    id: str | None
    name: str | None
    arguments: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one choice: what one event added, or all of it. ``offset`` is where its first
    token begins in the choice's text, in characters."""

    index: int
    content: str = ""
    reasoning: str = ""
    calls: tuple[CallPiece, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    offset: int = 0
    finish_reason: FinishReason | None = None

    def shows(self, head: ReplyHead) -> bool:
        """True when a client would see that it came. An end-of-sequence token, for one, has no
        text; only who asked for token ids or log probabilities sees it."""
        has_text = bool(self.content or self.reasoning or self.calls or self.finish_reason)
        return has_text or bool(self.logprobs) or (head.with_token_ids and bool(self.token_ids))


class Dialect(Protocol):
    """How one OpenAI endpoint writes a choice."""

    object_name: str
    chunk_object_name: str

    def choice(self, piece: Piece, head: ReplyHead) -> dict[str, Any]:
        """A whole choice of a full reply."""

    def chunk_choices(
        self, piece: Piece, head: ReplyHead, *, is_first: bool
    ) -> list[dict[str, Any]]:
        """The choices of the chunks that ``piece`` becomes, one a chunk."""

    def opening(self, index: int, head: ReplyHead, *, is_first: bool) -> dict[str, Any]:
        """A choice of a chunk that comes before any text."""


def piece_of(event: PromptEcho | TextDelta | ToolCallDelta | ChoiceDone, offset: int = 0) -> Piece:
    """What ``event`` adds to its choice."""
    if isinstance(event, ChoiceDone):
        return Piece(event.index, finish_reason=event.finish_reason)
    if isinstance(event, PromptEcho):
        return Piece(event.index, event.text, logprobs=event.logprobs, offset=offset)
    if isinstance(event, ToolCallDelta):
        call = CallPiece(event.call_index, event.id, event.name, event.arguments)
        return Piece(
            event.index,
            calls=(call,),
            token_ids=event.token_ids,
            logprobs=event.logprobs,
            offset=offset,
        )
    is_reasoning = event.channel == "reasoning"
    return Piece(
        index=event.index,
        content="" if is_reasoning else event.text,
        reasoning=event.text if is_reasoning else "",
        token_ids=event.token_ids,
        logprobs=event.logprobs,
        offset=offset,
    )


def fold(index: int, pieces: Sequence[Piece]) -> Piece:
    """All pieces of a choice as one."""
    return Piece(
        index=index,
        content="".join(piece.content for piece in pieces),
        reasoning="".join(piece.reasoning for piece in pieces),
        calls=_fold_calls([call for piece in pieces for call in piece.calls]),
        token_ids=tuple(token_id for piece in pieces for token_id in piece.token_ids),
        logprobs=tuple(entry for piece in pieces for entry in piece.logprobs),
        finish_reason=next((item.finish_reason for item in pieces if item.finish_reason), None),
    )


def _fold_calls(parts: Sequence[CallPiece]) -> tuple[CallPiece, ...]:
    """The parts of each call as one, in the order in which the calls began."""
    by_index: dict[int, list[CallPiece]] = {}
    for part in parts:
        by_index.setdefault(part.index, []).append(part)
    return tuple(
        CallPiece(index, own[0].id, own[0].name, "".join(part.arguments for part in own))
        for index, own in by_index.items()
    )


class FullReply:
    """Gathers the events of a request into one reply object."""

    def __init__(self, head: ReplyHead, dialect: Dialect) -> None:
        self._head = head
        self._dialect = dialect
        self._pieces: list[list[Piece]] = [[] for _ in range(head.num_choices)]
        self._usage: Usage | None = None

    @property
    def num_entries(self) -> int:
        """Log probabilities that the reply will hold."""
        return sum(len(piece.logprobs) for pieces in self._pieces for piece in pieces)

    def feed(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, RequestDone):
            self._usage = event.usage
        elif not isinstance(event, ReadProgress):
            self._pieces[event.index].append(piece_of(event))

    def flush(self) -> dict[str, Any]:
        """The reply. Every event must have been fed."""
        assert self._usage is not None
        head = self._head
        timings = {"timings": timings_dict(self._usage.timings)} if head.with_timings else {}
        return {
            "id": head.id,
            "object": self._dialect.object_name,
            "created": head.created,
            "model": head.model,
            "choices": [
                self._dialect.choice(fold(index, pieces), head)
                for index, pieces in enumerate(self._pieces)
            ],
            "usage": usage_dict(self._usage),
            **timings,
            **head.extras(),
        }


class ChunkedReply:
    """Turns each event into the chunks of a stream.

    Where timings are wanted, the end of a choice waits for the next event: the last chunk carries
    them, and they are known only then.
    """

    def __init__(self, head: ReplyHead, dialect: Dialect) -> None:
        self._head = head
        self._dialect = dialect
        self._offsets = [0] * head.num_choices
        self._opened: set[int] = set()
        self._extras = head.extras()
        self._held: list[dict[str, Any]] = []

    def open(self) -> list[dict[str, Any]]:
        """What a stream begins with: nothing before there is some text."""
        return []

    def feed(self, event: Event) -> list[dict[str, Any]]:
        """The chunks that ``event`` becomes; none while its text is still held back."""
        held, self._held = self._held, []
        if isinstance(event, RequestDone):
            return [*held, *self._last_chunks(event.usage, held)]
        chunks = self._chunks_of(event)
        if isinstance(event, ChoiceDone) and self._head.with_timings:
            chunks, self._held = [], chunks
        return [*held, *chunks]

    def fail(self, error: FlmError) -> list[dict[str, Any]]:
        """What ends a stream that cannot go on."""
        return [error.to_dict()]

    def _last_chunks(self, usage: Usage, held: list[dict[str, Any]]) -> list[dict[str, Any]]:
        chunks = self._usage_chunk(usage) if self._head.with_usage else []
        last = (chunks or held)[-1:]
        if self._head.with_timings and last:
            last[0]["timings"] = timings_dict(usage.timings)
        return chunks

    def _chunks_of(
        self, event: ReadProgress | PromptEcho | TextDelta | ToolCallDelta | ChoiceDone
    ) -> list[dict[str, Any]]:
        if isinstance(event, ReadProgress):
            return self._progress_chunk(event)
        piece = piece_of(event, self._offsets[event.index])
        self._offsets[event.index] += num_chars(piece.logprobs)
        if not piece.shows(self._head):
            return []
        is_first = event.index not in self._opened
        self._opened.add(event.index)
        choices = self._dialect.chunk_choices(piece, self._head, is_first=is_first)
        chunks = [self._chunk([choice]) for choice in choices]
        timings = getattr(event, "timings", None) if self._head.with_token_timings else None
        if timings is not None:
            chunks[-1]["timings"] = timings_dict(timings)
        return chunks

    def _progress_chunk(self, event: ReadProgress) -> list[dict[str, Any]]:
        is_first = event.index not in self._opened
        self._opened.add(event.index)
        choice = self._dialect.opening(event.index, self._head, is_first=is_first)
        return [{**self._chunk([choice]), "prompt_progress": progress_dict(event)}]

    def _usage_chunk(self, usage: Usage) -> list[dict[str, Any]]:
        return [{**self._chunk([]), "usage": usage_dict(usage)}]

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        head = self._head
        chunk: dict[str, Any] = {
            "id": head.id,
            "object": self._dialect.chunk_object_name,
            "created": head.created,
            "model": head.model,
            "system_fingerprint": head.fingerprint,
            "choices": choices,
        }
        if head.with_usage:
            chunk["usage"] = None
        chunk.update(self._extras)
        self._extras = {}
        return chunk


# --- counts ------------------------------------------------------------------------------------


def usage_dict(usage: Usage) -> dict[str, Any]:
    """OpenAI's ``usage`` with the server's own numbers. Durations are in seconds."""
    at = usage.diverged_at
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            **({} if at is None else {"diverged_at": at}),
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            **({} if usage.drafts is None else _predictions(usage.drafts)),
        },
        "kv_token_occupancy_rate_percentage": 100 * _ratio(usage.total_tokens, usage.context_len),
        "active_kv_tokens": usage.active_kv_tokens,
        "max_kv_token_capacity": usage.max_kv_tokens,
        "load_duration": usage.load_duration,
        "prefill_duration_ttft": usage.prefill_duration,
        "decoding_duration": usage.decoding_duration,
        "prefill_speed_tps": _ratio(
            usage.prompt_tokens - usage.cached_tokens, usage.prefill_duration
        ),
        # Decoding starts behind the first token of each choice.
        "decoding_speed_tps": _ratio(
            max(usage.completion_tokens - usage.num_choices, 0), usage.decoding_duration
        ),
    }


def _predictions(drafts: Drafts) -> dict[str, Any]:
    return {
        "accepted_prediction_tokens": drafts.num_accepted,
        "rejected_prediction_tokens": drafts.num_drafted - drafts.num_accepted,
    }


def _ratio(amount: float, whole: float) -> float:
    return amount / whole if whole > 0 else 0.0


def now() -> int:
    """Unix time in whole seconds."""
    return int(time.time())
