"""The measurements: targets take turns at every scenario of every round, so that noise of the
machine hits all alike."""

import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchlib.bandwidth import read_bandwidth
from benchlib.memory import MIB, PeakMemory
from benchlib.plan import Plan
from benchlib.scenarios import SCENARIOS, Bench, Values, ask, fit_of
from benchlib.stats import Summary, summarise
from benchlib.targets import Recipe, Target
from flm.bench.prompts import Fit, Prompts

WARM_UP_TOKENS = 16
BLOCK_BYTES = 1 << 28
"""Read to measure memory where nobody knows how large the weights are."""

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything measured of one target; a metric it cannot give is absent."""

    name: str
    model: str
    summaries: Mapping[str, Summary]
    command: str | None = None
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """One run. ``bandwidths`` are bytes read from memory a second, a value a round."""

    outcomes: tuple[Outcome, ...]
    bandwidths: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Seat:
    """A target that runs, and what has been found of it."""

    recipe: Recipe
    target: Target
    fit: Fit
    memory: PeakMemory | None
    found: Values


def run(
    recipes: Sequence[Recipe], plan: Plan, prompts: Prompts, note: Note, *, threads: int
) -> Result:
    """Measure all targets side by side.

    Raises:
        BenchError: one of them does not start, fails, or cannot be counted.
    """
    values: list[Values] = [defaultdict(list) for _ in recipes]
    began = time.monotonic()
    if plan.wants("startup"):
        _measure_startups(recipes, values, plan.repeat, note)
    with ExitStack() as stack:
        seats = [
            _seat(stack, recipe, prompts, found)
            for recipe, found in zip(recipes, values, strict=True)
        ]
        bandwidths = [
            _measure_round(seats, plan, prompts, number, note, threads)
            for number in _rounds(plan, began, note)
        ]
        for seat in seats:
            _measure_memory(seat)
        return Result(tuple(_outcome(seat) for seat in seats), tuple(bandwidths))


def _seat(stack: ExitStack, recipe: Recipe, prompts: Prompts, found: Values) -> _Seat:
    target = stack.enter_context(recipe.start())
    memory = None if target.pid is None else stack.enter_context(PeakMemory(target.pid))
    fit = fit_of(target, prompts)
    target.generate(ask(prompts.text(WARM_UP_TOKENS)), WARM_UP_TOKENS)
    return _Seat(recipe, target, fit, memory, found)


def _rounds(plan: Plan, began: float, note: Note) -> Iterator[int]:
    """The numbers of the rounds, from 1, as far as the time goes."""
    longest = 0.0
    for number in range(1, plan.repeat + 1):
        start = time.monotonic()
        if plan.minutes is not None and start - began + longest > 60 * plan.minutes and number > 1:
            note(f"no time for more than {number - 1} of {plan.repeat} rounds")
            return
        yield number
        longest = max(longest, time.monotonic() - start)


def _measure_round(
    seats: Sequence[_Seat], plan: Plan, prompts: Prompts, number: int, note: Note, threads: int
) -> float:
    """One round; the bandwidth in it."""
    sizes = [seat.recipe.weight_bytes for seat in seats if seat.recipe.weight_bytes is not None]
    bandwidth = read_bandwidth(threads, max(sizes, default=BLOCK_BYTES))
    for name, scenario in SCENARIOS.items():
        if not plan.wants(name):
            continue
        # Whoever comes first in one round comes last in the next.
        for seat in seats if number % 2 == 1 else reversed(seats):
            recipe, target = seat.recipe, seat.target
            is_asked = recipe.only is None or name in recipe.only
            if not is_asked or (scenario.many and not (target.takes_many and plan.num_clients)):
                continue
            note(f"round {number} of {plan.repeat}: {name}: {target.name}")
            scenario.run(Bench(target, seat.fit, prompts, plan, seat.found, number))
            if name == "decode" and recipe.weight_bytes is not None and seat.found["decode"]:
                limit = bandwidth / recipe.weight_bytes
                seat.found["roofline"].append(100 * seat.found["decode"][-1] / limit)
    return bandwidth


def _measure_memory(seat: _Seat) -> None:
    if seat.memory is None:
        return
    peak = seat.memory.peak_mib
    seat.found["memory"].append(peak)
    if seat.recipe.weight_bytes is not None:
        seat.found["memory_ratio"].append(peak * MIB / seat.recipe.weight_bytes)


def _outcome(seat: _Seat) -> Outcome:
    summaries = {name: summarise(values) for name, values in seat.found.items()}
    kept = {name: summary for name, summary in summaries.items() if summary is not None}
    target, recipe = seat.target, seat.recipe
    return Outcome(target.name, target.model, kept, recipe.command, tuple(target.facts))


def _measure_startups(
    recipes: Sequence[Recipe], values: Sequence[Values], repeat: int, note: Note
) -> None:
    """Start and end each program; its first start only warms the file cache."""
    for number in range(repeat + 1):
        for recipe, found in zip(recipes, values, strict=True):
            if not recipe.has_startup:
                continue
            note(f"start-up {number} of {repeat}: {recipe.name}")
            with recipe.start() as target:
                if number > 0 and target.startup_s is not None:
                    found["startup"].append(target.startup_s)
            if number > 0 and recipe.imports is not None:
                found["import"].append(import_time(recipe.imports))


def import_time(module: str) -> float:
    """Seconds that a fresh Python takes to import the module."""
    code = f"import time; began = time.perf_counter(); import {module}; "
    code += "print(time.perf_counter() - began)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)
