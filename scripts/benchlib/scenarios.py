"""The things that are done to a target, and what each of them measures."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

from benchlib.corpus import passage
from benchlib.plan import Plan
from benchlib.stats import Metric, summarise
from benchlib.targets import Target
from flm.bench.prompts import Fit, Prompts
from flm.bench.reply import Message, Reply

FIRST_QUESTION_TOKENS = 64
FOLLOW_UP = "Say that again in other words."
REPEAT = "Repeat the following text word for word:\n\n"
HEARD_FIRST = 4
"""Pieces of a running reply before another prompt arrives."""

Values = defaultdict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Bench:
    """One target in one round: what it is asked and where the values go."""

    target: Target
    fit: Fit
    prompts: Prompts
    plan: Plan
    found: Values
    round: int

    def text(self, num_tokens: int) -> str:
        """A prompt of about that many tokens, template included."""
        return self.prompts.text(self.fit.words_for(num_tokens))

    def all_at_once(self, questions: Sequence[Sequence[Message]]) -> tuple[list[Reply], float]:
        """Ask all questions at the same time; the replies, and the seconds until the last."""
        gate = threading.Barrier(len(questions) + 1)

        def one_client(question: Sequence[Message]) -> Reply:
            gate.wait()
            return self.target.generate(question, self.plan.client_tokens)

        with ThreadPoolExecutor(len(questions)) as pool:
            futures = [pool.submit(one_client, question) for question in questions]
            gate.wait()
            began = time.perf_counter()
            replies = [future.result() for future in futures]
            return replies, time.perf_counter() - began


def ask(text: str) -> list[Message]:
    """A conversation of one question."""
    return [{"role": "user", "content": text}]


def fit_of(target: Target, prompts: Prompts) -> Fit:
    """How words become tokens there."""
    return prompts.fit(lambda text: target.generate(ask(text), 1).prompt_tokens)


# --- what is done ------------------------------------------------------------------------------


def _read_prompts(bench: Bench) -> None:
    for length in bench.plan.prompt_lens:
        reply = bench.target.generate(ask(bench.text(length)), 1)
        bench.found[f"ttft_{length}"].append(reply.first_token_s)
        bench.found[f"prefill_{length}"].append(reply.prefill_tps)


def _decode(bench: Bench) -> None:
    question = ask(bench.text(FIRST_QUESTION_TOKENS))
    _keep_speed(bench, "decode", bench.target.generate(question, bench.plan.decode_len))


def _keep_speed(bench: Bench, name: str, reply: Reply) -> None:
    if reply.decode_tps > 0:
        bench.found[name].append(reply.decode_tps)


def _clients(bench: Bench) -> None:
    plan = bench.plan
    questions = [ask(bench.text(plan.client_prompt_len)) for _ in range(plan.num_clients)]
    replies, took = bench.all_at_once(questions)
    bench.found["clients"].append(_total(replies) / took)
    ends = [reply.last_token_s for reply in replies]
    bench.found["clients_spread"].append(100 * (max(ends) - min(ends)) / max(ends))
    firsts = summarise([reply.first_token_s for reply in replies])
    if firsts is not None:
        bench.found["clients_ttft"].append(firsts.median)


def _total(replies: Sequence[Reply]) -> int:
    return sum(reply.completion_tokens for reply in replies)


def _shared_prompt(bench: Bench) -> None:
    """Two waves of clients with one system prompt: it is new to the first wave."""
    plan = bench.plan
    system: Message = {"role": "system", "content": bench.text(plan.shared_len)}
    for name in ("shared", "shared_again"):
        asked = [ask(bench.text(plan.client_prompt_len)) for _ in range(plan.num_clients)]
        replies, took = bench.all_at_once([[system, *question] for question in asked])
        bench.found[name].append(_total(replies) / took)


def _second_turn(bench: Bench) -> None:
    """A conversation goes on: what was read and written before need not be read again."""
    history = ask(bench.text(bench.plan.turn_len))
    first = bench.target.generate(history, FIRST_QUESTION_TOKENS)
    turn = [{"role": "assistant", "content": first.text}, *ask(FOLLOW_UP)]
    second = bench.target.generate([*history, *turn], 1)
    bench.found["second_turn"].append(second.first_token_s)


def _repeat_passage(bench: Bench) -> None:
    text = passage(bench.round, bench.plan.repeated_words)
    # A number that is new each time keeps the reply out of caches of what was said before.
    question = ask(f"{REPEAT}{bench.prompts.text(1)} {text}")
    _keep_speed(bench, "repeat", bench.target.generate(question, bench.plan.decode_len))


def _arrival(bench: Bench) -> None:
    """A long prompt arrives while somebody else's reply is being written."""
    plan = bench.plan
    question, arriving = ask(bench.text(FIRST_QUESTION_TOKENS)), ask(bench.text(plan.arrival_len))
    under_way = threading.Semaphore(0)
    with ThreadPoolExecutor(1) as pool:
        began = time.perf_counter()
        running = pool.submit(
            bench.target.generate, question, 2 * plan.decode_len, under_way.release
        )
        running.add_done_callback(lambda _: under_way.release(HEARD_FIRST))
        for _ in range(HEARD_FIRST):
            under_way.acquire()
        start = time.perf_counter() - began
        bench.target.generate(arriving, 1)
        end = time.perf_counter() - began
        gap = longest_gap(running.result().times, start, end)
    if gap is None:
        return
    bench.found["pause"].append(gap)
    reads = bench.found.get("ttft_512")
    if reads:
        bench.found["pause_512"].append(gap / reads[-1])


def longest_gap(times: Sequence[float], start: float, end: float) -> float | None:
    """The longest wait between two neighbouring times of which some lies within start..end; None
    where there is none."""
    waits = [after - before for before, after in pairwise(times) if before < end and after > start]
    return max(waits, default=None)


# --- the list ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scenario:
    """``metrics`` gives what a plan's run of it yields; without ``many``, clients come alone."""

    run: Callable[[Bench], None]
    metrics: Callable[[Plan], Sequence[Metric]]
    many: bool = False


def _prompt_metrics(plan: Plan) -> list[Metric]:
    found = []
    for length in plan.prompt_lens:
        found += [
            Metric(f"ttft_{length}", f"first token, prompt {length}", "s", False),
            Metric(f"prefill_{length}", f"prefill, prompt {length}", "tok/s", True),
        ]
    return found


def _client_metrics(plan: Plan) -> list[Metric]:
    who = f"{plan.num_clients} clients"
    return [
        Metric("clients", f"{who}, total", "tok/s", True),
        Metric("clients_ttft", f"{who}, first token", "s", False),
        Metric("clients_spread", f"{who}, first to last end", "% of the last", False),
    ]


def _shared_metrics(plan: Plan) -> list[Metric]:
    who = f"{plan.num_clients} clients, one system prompt of {plan.shared_len}"
    return [
        Metric("shared", f"{who}, total", "tok/s", True),
        Metric("shared_again", f"{who}, again", "tok/s", True),
    ]


def _arrival_metrics(plan: Plan) -> list[Metric]:
    what = f"longest pause beside a prompt of {plan.arrival_len}"
    found = [Metric("pause", what, "s", False)]
    if 512 in plan.prompt_lens and plan.wants("prompt"):
        found.append(Metric("pause_512", what, "times first token, prompt 512", False))
    return found


SCENARIOS: Mapping[str, Scenario] = {
    "prompt": Scenario(_read_prompts, _prompt_metrics),
    "decode": Scenario(
        _decode,
        lambda plan: [
            Metric("decode", f"decode, {plan.decode_len} tokens", "tok/s", True),
            Metric("roofline", "decode, of what reading the weights allows", "%", True),
        ],
    ),
    "repeat": Scenario(
        _repeat_passage,
        lambda plan: [
            Metric("repeat", f"decode, {plan.decode_len} tokens that repeat a text", "tok/s", True)
        ],
    ),
    "clients": Scenario(_clients, _client_metrics, many=True),
    "shared": Scenario(_shared_prompt, _shared_metrics, many=True),
    "turn": Scenario(
        _second_turn,
        lambda plan: [
            Metric("second_turn", f"first token, second turn after {plan.turn_len}", "s", False)
        ],
    ),
    "arrival": Scenario(_arrival, _arrival_metrics, many=True),
}


def metrics(plan: Plan) -> tuple[Metric, ...]:
    """What a plan gives, in the order of the table."""
    found: list[Metric] = []
    if plan.wants("startup"):
        found.append(Metric("startup", "start-up", "s", False))
        found.append(Metric("import", "import of flm.router", "s", False))
    for name, scenario in SCENARIOS.items():
        if plan.wants(name):
            found += scenario.metrics(plan)
    return (
        *found,
        Metric("memory", "peak memory", "MiB", False),
        Metric("memory_ratio", "peak memory", "times the weights as stored", False),
    )
