"""One row sampled the slow, obvious way, in plain Python floats, as docs/sampling.md says it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flm.types import SamplingParams

LIMIT = 3.4028234663852886e38
"""Shifted logits stay finite in float32."""


@dataclass(frozen=True)
class Reference:
    """Everything a test may want to compare."""

    token_id: int | None
    survivors: list[int]
    probabilities: list[float]
    boundaries: list[float]
    """Numbers near which rounding may decide: running sums of both softmaxes and cut-offs."""


def shaped(
    logits: Sequence[float],
    params: SamplingParams,
    window: Sequence[int],
    bias: Sequence[tuple[int, float]],
    allowed: Sequence[bool],
) -> list[float]:
    """Logits after bias, penalties and mask."""
    values = list(logits)
    for token, amount in bias:
        values[token] = clamp(values[token], values[token] + amount)
    for token in dict.fromkeys(window):
        if not params.has_penalties:
            break
        count = list(window).count(token)
        value = values[token]
        value = (
            divide(value, params.repetition_penalty)
            if value > 0
            else (value * params.repetition_penalty)
        )
        value -= params.presence_penalty + params.frequency_penalty * count
        values[token] = clamp(values[token], value)
    return [value if ok else -math.inf for value, ok in zip(values, allowed, strict=True)]


def divide(value: float, by: float) -> float:
    try:
        return value / by
    except OverflowError:
        return math.inf


def clamp(before: float, after: float) -> float:
    if before == -math.inf:
        return before
    return min(max(after, -LIMIT), LIMIT)


def reference(values: Sequence[float], params: SamplingParams, uniform: float) -> Reference:
    """From shaped logits to the token; ``token_id`` is None when none is allowed."""
    order = sorted(range(len(values)), key=lambda token: (-values[token], token))
    order = [token for token in order if values[token] != -math.inf]
    if not order or values[order[0]] == math.inf:
        return Reference(None, [], [], [])
    if params.is_greedy:
        return Reference(order[0], [order[0]], [1.0], [])
    order = order[: params.top_k]
    probabilities = softmax([values[token] for token in order], 1.0)
    running = sums(probabilities)
    num_top_p = len(order)
    if params.top_p < 1:
        reached = [place for place, total in enumerate(running) if total >= params.top_p]
        num_top_p = reached[0] + 1 if reached else len(order)
    kept = order[:num_top_p]
    boundaries = [abs(total - params.top_p) for total in running]
    if params.min_p > 0:
        threshold = values[order[0]] + math.log(params.min_p)
        boundaries += [abs(values[token] - threshold) for token in kept]
        kept = [token for token in kept if values[token] >= threshold]
    kept = kept or order[:1]
    final = softmax([values[token] for token in kept], params.temperature)
    totals = sums(final)
    boundaries += [abs(total - uniform) for total in totals[:-1]]
    place = next((i for i, total in enumerate(totals) if total >= uniform), len(kept) - 1)
    return Reference(kept[place], kept, final, boundaries)


def softmax(values: Sequence[float], temperature: float) -> list[float]:
    peak = values[0]
    weights = []
    for value in values:
        gap = value - peak
        weights.append(1.0 if gap == 0 else math.exp(max(divide(gap, temperature), -1e6)))
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def sums(values: Sequence[float]) -> list[float]:
    return [math.fsum(values[: place + 1]) for place in range(len(values))]
