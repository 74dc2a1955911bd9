"""The measurements: every target in turn, round after round, so that noise hits all alike."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from benchlib.memory import PeakMemory
from benchlib.prompts import Fit, Prompts
from benchlib.reply import Message, Reply
from benchlib.stats import Metric, Summary, summarise
from benchlib.targets import Recipe, Target

FIRST_QUESTION_TOKENS = 64
FOLLOW_UP = "Say that again in other words."


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. Lengths are in tokens."""

    prompt_lens: tuple[int, ...] = (512,)
    decode_len: int = 128
    num_clients: int = 8
    client_prompt_len: int = 64
    client_tokens: int = 64
    repeat: int = 3
    cached_turn: bool = False

    def metrics(self) -> tuple[Metric, ...]:
        """What this plan gives, in the order of the table."""
        found = [Metric("startup", "start-up", "s", is_better_high=False)]
        for length in self.prompt_lens:
            found += [
                Metric(f"ttft_{length}", f"first token, prompt {length}", "s", False),
                Metric(f"prefill_{length}", f"prefill, prompt {length}", "tok/s", True),
            ]
        found.append(Metric("decode", f"decode, {self.decode_len} tokens", "tok/s", True))
        if self.num_clients > 0:
            title = f"{self.num_clients} clients, total"
            found += [
                Metric("clients", title, "tok/s", True),
                Metric("clients_ttft", f"{self.num_clients} clients, first token", "s", False),
            ]
        if self.cached_turn:
            length = self.prompt_lens[0]
            found.append(Metric("cached_ttft", f"second turn after {length}", "s", False))
        return (*found, Metric("memory", "peak memory", "MiB", is_better_high=False))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything measured of one target; a metric it cannot give is absent."""

    name: str
    model: str
    summaries: Mapping[str, Summary]


Values = defaultdict[str, list[float]]
Note = Callable[[str], None]


def run(recipes: Sequence[Recipe], plan: Plan, prompts: Prompts, note: Note) -> list[Outcome]:
    """Measure all targets side by side.

    Raises:
        BenchError: one of them does not start, fails, or cannot be counted.
    """
    values: list[Values] = [defaultdict(list) for _ in recipes]
    _measure_startups(recipes, values, plan.repeat, note)
    with ExitStack() as stack:
        targets = [stack.enter_context(recipe.start()) for recipe in recipes]
        fits = [_fit(target, prompts) for target in targets]
        watches = [
            None if target.pid is None else stack.enter_context(PeakMemory(target.pid))
            for target in targets
        ]
        for number in range(1, plan.repeat + 1):
            for target, fit, found in zip(targets, fits, values, strict=True):
                note(f"round {number} of {plan.repeat}: {target.name}")
                _measure_round(_Bench(target, fit, prompts, plan, found))
        for watch, found in zip(watches, values, strict=True):
            if watch is not None:
                found["memory"].append(watch.peak_mib)
        return [_outcome(target, found) for target, found in zip(targets, values, strict=True)]


def _outcome(target: Target, found: Values) -> Outcome:
    summaries = {name: summarise(values) for name, values in found.items()}
    kept = {name: summary for name, summary in summaries.items() if summary is not None}
    return Outcome(target.name, target.model, kept)


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


def _ask(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


def _fit(target: Target, prompts: Prompts) -> Fit:
    return prompts.fit(lambda text: target.generate(_ask(text), 1).prompt_tokens)


# --- one round at one target -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Bench:
    target: Target
    fit: Fit
    prompts: Prompts
    plan: Plan
    found: Values

    def text(self, num_tokens: int) -> str:
        """A prompt of about that many tokens, template included."""
        return self.prompts.text(self.fit.words_for(num_tokens))


def _measure_round(bench: _Bench) -> None:
    for length in bench.plan.prompt_lens:
        reply = bench.target.generate(_ask(bench.text(length)), 1)
        bench.found[f"ttft_{length}"].append(reply.first_token_s)
        bench.found[f"prefill_{length}"].append(reply.prefill_tps)
    _measure_decode(bench)
    if bench.target.takes_many and bench.plan.num_clients > 0:
        _measure_clients(bench)
    if bench.plan.cached_turn:
        _measure_second_turn(bench)


def _measure_decode(bench: _Bench) -> None:
    question = _ask(bench.text(FIRST_QUESTION_TOKENS))
    reply = bench.target.generate(question, bench.plan.decode_len)
    if reply.decode_tps > 0:
        bench.found["decode"].append(reply.decode_tps)


def _measure_clients(bench: _Bench) -> None:
    plan = bench.plan
    texts = [bench.text(plan.client_prompt_len) for _ in range(plan.num_clients)]
    gate = threading.Barrier(plan.num_clients + 1)

    def one_client(text: str) -> Reply:
        gate.wait()
        return bench.target.generate(_ask(text), plan.client_tokens)

    with ThreadPoolExecutor(plan.num_clients) as pool:
        futures = [pool.submit(one_client, text) for text in texts]
        gate.wait()
        began = time.perf_counter()
        replies = [future.result() for future in futures]
        took = time.perf_counter() - began
    bench.found["clients"].append(sum(reply.completion_tokens for reply in replies) / took)
    firsts = summarise([reply.first_token_s for reply in replies])
    if firsts is not None:
        bench.found["clients_ttft"].append(firsts.median)


def _measure_second_turn(bench: _Bench) -> None:
    """A conversation goes on: what was read and written before need not be read again."""
    history = _ask(bench.text(bench.plan.prompt_lens[0]))
    first = bench.target.generate(history, FIRST_QUESTION_TOKENS)
    turn = [{"role": "assistant", "content": first.text}, *_ask(FOLLOW_UP)]
    second = bench.target.generate([*history, *turn], 1)
    bench.found["cached_ttft"].append(second.first_token_s)
