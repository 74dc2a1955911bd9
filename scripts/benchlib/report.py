"""The table for people and the JSON for programs."""

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import psutil
from rich.table import Table

from benchlib.measure import Outcome, Plan
from benchlib.stats import Summary, advantage


def table(outcomes: Sequence[Outcome], plan: Plan) -> Table:
    """A row for each metric, a column for each target, and how the first compares to the rest."""
    first, *peers = outcomes
    result = Table(title=f"{first.model}: median (smallest to largest) of {plan.repeat}")
    result.add_column("")
    for outcome in outcomes:
        result.add_column(outcome.name, justify="right")
    for peer in peers:
        result.add_column(f"{first.name} vs {peer.name}", justify="right")
    for metric in plan.metrics():
        found = [outcome.summaries.get(metric.name) for outcome in outcomes]
        cells = [_cell(summary) for summary in found]
        factors = [advantage(metric, found[0], peer) for peer in found[1:]]
        cells += ["-" if factor is None else f"{factor:.2f}x" for factor in factors]
        result.add_row(f"{metric.title} ({metric.unit})", *cells)
    if peers:
        result.caption = "x: above 1 is better than the peer, whichever way the metric points"
    return result


def _cell(summary: Summary | None) -> str:
    if summary is None:
        return "-"
    if len(summary.values) == 1:
        return _number(summary.median)
    return f"{_number(summary.median)} ({_number(summary.low)} to {_number(summary.high)})"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def as_json(outcomes: Sequence[Outcome], plan: Plan, *, threads: int, seed: int) -> dict[str, Any]:
    """Everything, values included, so that runs can be compared later."""
    metrics = plan.metrics()
    first, *peers = outcomes
    return {
        "object": "bench",
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": _machine(),
        "plan": asdict(plan),
        "threads": threads,
        "seed": seed,
        "targets": [
            {
                "name": outcome.name,
                "model": outcome.model,
                "metrics": {
                    metric.name: {"unit": metric.unit, **_numbers(summary)}
                    for metric in metrics
                    if (summary := outcome.summaries.get(metric.name)) is not None
                },
            }
            for outcome in outcomes
        ],
        "advantage": {
            peer.name: {
                metric.name: factor
                for metric in metrics
                if (factor := _factor(metric.name, first, peer, plan)) is not None
            }
            for peer in peers
        },
    }


def _numbers(summary: Summary) -> dict[str, Any]:
    return {
        "median": summary.median,
        "min": summary.low,
        "max": summary.high,
        "values": list(summary.values),
    }


def _factor(name: str, first: Outcome, peer: Outcome, plan: Plan) -> float | None:
    metric = next(metric for metric in plan.metrics() if metric.name == name)
    return advantage(metric, first.summaries.get(name), peer.summaries.get(name))


def _machine() -> dict[str, Any]:
    return {
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "physical_cores": psutil.cpu_count(logical=False),
        "memory_mib": psutil.virtual_memory().total >> 20,
    }
