"""The table for people and the JSON for programs."""

import os
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from rich.table import Table

from benchlib.measure import Outcome, Result
from benchlib.plan import Plan
from benchlib.scenarios import metrics
from benchlib.stats import Metric, Summary, advantage, summarise


def table(result: Result, plan: Plan) -> Table:
    """A row for each metric, a column for each target, and how the first compares to the rest."""
    first, *peers = result.outcomes
    count = len(result.bandwidths)
    found = Table(title=f"{first.model}: median (smallest to largest) of {count}")
    found.add_column("")
    for outcome in result.outcomes:
        found.add_column(outcome.name, justify="right")
    for peer in peers:
        found.add_column(f"{first.name} vs {peer.name}", justify="right")
    for metric in metrics(plan):
        values = [outcome.summaries.get(metric.name) for outcome in result.outcomes]
        cells = [cell(summary) for summary in values]
        factors = [advantage(metric, values[0], peer) for peer in values[1:]]
        cells += ["-" if factor is None else f"{factor:.2f}x" for factor in factors]
        found.add_row(f"{metric.title} ({metric.unit})", *cells)
    if peers:
        found.caption = "x: above 1 is better than the peer, whichever way the metric points"
    return found


def facts(result: Result, threads: int) -> list[str]:
    """What the numbers depend on: the machine, and how each target was run."""
    lines = [f"{key}: {value}" for key, value in machine().items()]
    read = summarise([value / 1e9 for value in result.bandwidths])
    if read is not None:
        lines.append(f"memory, read by {threads} threads: {cell(read)} GB/s")
    for outcome in result.outcomes:
        if outcome.command is not None:
            lines.append(f"{outcome.name}: {outcome.command}")
        lines += [f"{outcome.name}: {fact}" for fact in outcome.facts]
    return lines


def cell(summary: Summary | None) -> str:
    """A summary as the tables show it."""
    if summary is None:
        return "-"
    if len(summary.values) == 1:
        return _number(summary.median)
    return f"{_number(summary.median)} ({_number(summary.low)} to {_number(summary.high)})"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def as_json(result: Result, plan: Plan, *, threads: int, seed: int) -> dict[str, Any]:
    """Everything, values included, so that runs can be compared later."""
    wanted = metrics(plan)
    first, *peers = result.outcomes
    return {
        "object": "bench",
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "bandwidth_bytes_per_s": list(result.bandwidths),
        "plan": {**asdict(plan), "only": sorted(plan.only), "kv_tokens": plan.kv_tokens},
        "threads": threads,
        "seed": seed,
        "targets": [
            {
                "name": outcome.name,
                "model": outcome.model,
                "command": outcome.command,
                "facts": list(outcome.facts),
                "metrics": {
                    metric.name: {"unit": metric.unit, **_numbers(summary)}
                    for metric in wanted
                    if (summary := outcome.summaries.get(metric.name)) is not None
                },
            }
            for outcome in result.outcomes
        ],
        "advantage": {
            peer.name: {
                metric.name: factor
                for metric in wanted
                if (factor := _factor(metric, first, peer)) is not None
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


def _factor(metric: Metric, first: Outcome, peer: Outcome) -> float | None:
    return advantage(metric, first.summaries.get(metric.name), peer.summaries.get(metric.name))


def machine() -> dict[str, Any]:
    """The machine and its load: a figure of a busy one says little."""
    return {
        "platform": platform.platform(),
        "processor": _processor(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "physical_cores": psutil.cpu_count(logical=False),
        "memory_mib": psutil.virtual_memory().total >> 20,
        "load": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
