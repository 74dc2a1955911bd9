"""One row sampled the slow, obvious way, in plain Python floats, as docs/sampling.md says it."""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from flm.types import SamplingParams

LIMIT = 3.4028234663852886e38
"""The largest float32: shifted logits stay finite."""


@dataclass(frozen=True)
class Reference:
    """``token_id`` is None when no token is allowed. ``survivors`` may be drawn, best first, with
    ``probabilities``. ``margins`` are distances to the points where rounding could decide."""

    token_id: int | None
    survivors: list[int]
    probabilities: list[float]
    margins: list[float]


# --- the logits --------------------------------------------------------------------------------


def shaped(
    logits: Sequence[float],
    params: SamplingParams,
    window: Sequence[int],
    bias: Sequence[tuple[int, float]],
    allowed: Sequence[bool],
) -> list[float]:
    """Logits after bias, penalties and mask. What is -inf stays so."""
    values = [add_bias(value, dict(bias).get(token)) for token, value in enumerate(logits)]
    if params.repeat_last_n != 0:
        values = [
            penalise(value, params, list(window).count(token)) for token, value in enumerate(values)
        ]
    return [value if ok else -math.inf for value, ok in zip(values, allowed, strict=True)]


def add_bias(value: float, amount: float | None) -> float:
    return value if amount is None or value == -math.inf else float32(value + amount)


def penalise(value: float, params: SamplingParams, count: int) -> float:
    if count == 0 or value == -math.inf:
        return value
    if value > 0:
        value = value / params.repetition_penalty
    else:
        value = value * params.repetition_penalty
    shift = params.presence_penalty + params.frequency_penalty * count
    return float32(within_limits(value) - shift)


def within_limits(value: float) -> float:
    return min(max(value, -LIMIT), LIMIT)


def float32(value: float) -> float:
    """The nearest float32, as a stage hands it on to the next."""
    rounded: float = struct.unpack("f", struct.pack("f", within_limits(value)))[0]
    return rounded


# --- the choice --------------------------------------------------------------------------------


def reference(values: Sequence[float], params: SamplingParams, uniform: float) -> Reference:
    """From shaped logits to the token."""
    order = sorted(range(len(values)), key=lambda token: (-values[token], token))
    if values[order[0]] == -math.inf:
        return Reference(None, [], [], [])
    if params.temperature == 0 or params.top_k == 1:
        return Reference(order[0], order[:1], [1.0], [])
    order = order[: params.top_k]
    margins: list[float] = []
    kept = [
        token
        for token in order
        if token in within_top_p(order, values, params.top_p, margins)
        and token in within_min_p(order, values, params.min_p, margins)
    ]
    probabilities = softmax([values[token] for token in kept], params.temperature)
    place = first_reaching(running_sums(probabilities), uniform, margins)
    return Reference(kept[place], kept, probabilities, margins)


def within_top_p(
    order: list[int], values: Sequence[float], top_p: float, margins: list[float]
) -> list[int]:
    if top_p >= 1:
        return order
    probabilities = softmax([values[token] for token in order], 1.0)
    return order[: first_reaching(running_sums(probabilities), top_p, margins) + 1]


def within_min_p(
    order: list[int], values: Sequence[float], min_p: float, margins: list[float]
) -> list[int]:
    if min_p == 0:
        return order
    threshold = values[order[0]] + math.log(min_p)
    # The best token is never at the mercy of rounding: its distance to itself is exact.
    margins += [abs(values[token] - threshold) for token in order if min_p < 1]
    return [token for token in order if values[token] >= threshold]


def first_reaching(sums: list[float], target: float, margins: list[float]) -> int:
    """The place of the first sum that is at least ``target``; the last one where none is."""
    margins += [abs(total - target) for total in sums if target > 0]
    return next((place for place, total in enumerate(sums) if total >= target), len(sums) - 1)


def running_sums(values: list[float]) -> list[float]:
    return [math.fsum(values[: place + 1]) for place in range(len(values))]


def softmax(values: list[float], temperature: float) -> list[float]:
    """Of values that come best first."""
    weights = [exp((value - values[0]) / temperature) for value in values]
    return [weight / math.fsum(weights) for weight in weights]


def exp(value: float) -> float:
    return math.exp(value) if value > -1e4 else 0.0


def logprobs(logits: Sequence[float]) -> list[float]:
    """Logarithms of the probabilities of raw logits; -inf where there is none."""
    peak = max(logits)
    total = peak + math.log(math.fsum(exp(value - peak) for value in logits))
    return [value - total for value in logits]
