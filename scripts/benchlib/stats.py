"""Medians, spread and ratios."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """A quantity that is measured. ``is_better_high`` says which way is good."""

    name: str
    title: str
    unit: str
    is_better_high: bool


@dataclass(frozen=True, slots=True)
class Summary:
    """All values of one metric at one target."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The smallest value."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The largest value."""
        return max(self.values)


def summarise(values: Sequence[float]) -> Summary | None:
    """A summary, or None when nothing was measured."""
    return Summary(tuple(values)) if values else None


def advantage(metric: Metric, ours: Summary | None, peer: Summary | None) -> float | None:
    """How many times better our median is than the peer's (below 1: worse)."""
    if ours is None or peer is None:
        return None
    better, worse = (ours, peer) if metric.is_better_high else (peer, ours)
    return better.median / worse.median if worse.median > 0 else None
