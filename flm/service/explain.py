"""What the prefix cache would give a request, and in words where the prompt leaves it.

Plain blocking functions; the service runs them in its small pool.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flm.errors import FlmError
from flm.service.models import LoadedModel, Prepared
from flm.service.prepare import chat_prompt_ids

SHOWN_TOKENS = 16
"""Tokens of the prompt that are shown on each side of the place."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a prompt leaves what is cached though that goes on.

    ``at`` is the index of the first token that differs. ``before`` is the text in front of it, the
    same in both; ``prompt`` is how the prompt goes on and ``cached`` how the cache does.
    ``message`` is the index of the message that the place is in; None where it is in none (markup,
    tools, no chat).
    """

    at: int
    before: str
    prompt: str
    cached: str
    message: int | None


@dataclass(frozen=True, slots=True)
class CachePlan:
    """What the cache would give one prompt: its first ``cached_tokens``."""

    cached_tokens: int
    divergence: Divergence | None = None


def cache_plans(model: LoadedModel, prepared: Prepared) -> tuple[CachePlan, ...]:
    """What the cache would give each prompt of a request now. Changes nothing."""
    request = prepared.request
    if not request.reads_cache:
        return (CachePlan(0),) * len(prepared.prompt_ids)
    return tuple(_cache_plan(model, prepared, ids) for ids in prepared.prompt_ids)


def _cache_plan(model: LoadedModel, prepared: Prepared, ids: tuple[int, ...]) -> CachePlan:
    found = model.engine.cached_prefix(ids)
    at = found.diverged_at
    if at is None:
        return CachePlan(found.length)
    divergence = Divergence(
        at=at,
        before=_text(model, ids[max(at - SHOWN_TOKENS, 0) : at]),
        prompt=_text(model, ids[at : at + SHOWN_TOKENS]),
        cached=_text(model, found.cached_ids),
        message=_message_at(model, prepared, ids, at),
    )
    return CachePlan(found.length, divergence)


def _text(model: LoadedModel, ids: Sequence[int]) -> str:
    return model.tokenizer.decode(ids, skip_control=False)


# --- which message? ----------------------------------------------------------------------------


def _message_at(
    model: LoadedModel, prepared: Prepared, ids: tuple[int, ...], at: int
) -> int | None:
    """The index of the message whose content holds token ``at``, or ended there.

    Templates move and merge messages as they like, so that is tried out: a letter more at the
    start or the end of a content shows where that is among the tokens.
    """
    messages = prepared.request.messages
    if messages is None:
        return None
    try:
        low, high = 0, len(messages)
        while low < high:
            middle = (low + high) // 2
            if _start(model, prepared, ids, middle) <= at:
                low = middle + 1
            else:
                high = middle
        index = low - 1
        is_inside = index >= 0 and at <= _end(model, prepared, ids, index)
    except FlmError:
        # The template, or the context, takes no letter more.
        return None
    return index if is_inside else None


def _start(model: LoadedModel, prepared: Prepared, ids: tuple[int, ...], index: int) -> int:
    """The index of the token with which the content of a message begins."""
    return _num_common(ids, _changed(model, prepared, index, at_end=False))


def _end(model: LoadedModel, prepared: Prepared, ids: tuple[int, ...], index: int) -> int:
    """The index of the token behind a message: behind its calls, where it has any."""
    messages = prepared.request.messages
    assert messages is not None
    if messages[index].get("tool_calls"):
        is_last = index + 1 == len(messages)
        return len(ids) if is_last else _start(model, prepared, ids, index + 1) - 1
    changed = _changed(model, prepared, index, at_end=True)
    return len(ids) - _num_common(ids[::-1], changed[::-1])


def _changed(
    model: LoadedModel, prepared: Prepared, index: int, *, at_end: bool
) -> tuple[int, ...]:
    """The prompt with a letter more in the content of one message."""
    messages = list(prepared.request.messages or ())
    messages[index] = _longer(messages[index], at_end=at_end)
    return chat_prompt_ids(model, replace(prepared.request, messages=tuple(messages)))


def _longer(message: Mapping[str, Any], *, at_end: bool) -> dict[str, Any]:
    content = message.get("content") or ""
    edge = content[-1:] if at_end else content[:1]
    letter = "y" if edge == "x" else "x"
    return {**message, "content": f"{content}{letter}" if at_end else f"{letter}{content}"}


def _num_common(left: Sequence[int], right: Sequence[int]) -> int:
    for place, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return place
    return min(len(left), len(right))
