"""Guessing ahead changes nothing but the number of steps."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from flm.engine.drafts import MAX_DRAFT_ROWS
from flm.engine.engine import Engine
from flm.engine.protocol import EngineConfig, EngineEvent, EngineRequest, Failed, TokenOut
from flm.engine.step import StepPlan
from flm.sampling.batch import Sampled, SamplingRow
from flm.sampling.draw import ModelRandom
from flm.sampling.pipeline import Sampler
from flm.types import SamplingParams
from tests.support.engines import Reply, drain, finish, prompt, request, run
from tests.support.fake_model import VOCAB_SIZE
from tests.support.paged_text import PagedText
from tests.support.scripted import saying

BLOCK = 4


def make_engine(*, speculates: bool = True, steadiness: float = 12.0, **limits: Any) -> Engine:
    config = EngineConfig(
        **{"block_size": BLOCK, "num_blocks": 256, "chunk_len": 64, "slice_len": 16} | limits,
        speculates=speculates,
    )
    runner = PagedText(config.num_blocks, config.block_size, steadiness=steadiness)
    return Engine(runner, config, random=ModelRandom(1), vocab_size=VOCAB_SIZE, clock=lambda: 0.0)


def plans(engine: Engine) -> list[StepPlan]:
    runner = engine._runner
    assert isinstance(runner, PagedText)
    return runner.plans


class StepGrammar:
    """After a token, some tokens cannot follow; which ones depends on it and on how many there
    were. Complains when it is told a token that it does not allow."""

    def __init__(self) -> None:
        self.accepted: list[int] = []

    def _allows(self, token_id: int) -> bool:
        last = self.accepted[-1] if self.accepted else 0
        return (token_id + last + len(self.accepted) // 7) % 5 != 1

    def mask(self) -> bytes:
        number = sum(1 << token for token in range(VOCAB_SIZE) if self._allows(token))
        return number.to_bytes(VOCAB_SIZE // 8 + 1, "little")

    def accept(self, token_id: int) -> None:
        assert self._allows(token_id)
        self.accepted.append(token_id)


# --- anything ----------------------------------------------------------------------------------


def a_prompt(generator: random.Random) -> tuple[int, ...]:
    """One that repeats itself, or not."""
    piece = prompt(generator.randrange(1, 12), generator.randrange(4))
    return piece * generator.choice([1, 2, 3]) + piece[: generator.randrange(3)]


def a_sampling(generator: random.Random) -> SamplingParams:
    return SamplingParams(
        temperature=generator.choice([0.0, 0.0, 0.5, 1.0]),
        top_k=generator.choice([3, 20, VOCAB_SIZE]),
        top_p=generator.choice([0.8, 1.0]),
        min_p=generator.choice([0.0, 0.05]),
        repetition_penalty=generator.choice([1.0, 1.0, 1.2]),
        presence_penalty=generator.choice([0.0, 0.0, 1.0]),
        frequency_penalty=generator.choice([0.0, 0.0, 0.3]),
        repeat_last_n=generator.choice([-1, 0, 1, 5, 64]),
    )


def a_request(name: str, seed: int, *, seeded: bool = True) -> EngineRequest:
    """The same one for the same seed, with a grammar of its own."""
    generator = random.Random(seed)
    bias = ((generator.randrange(VOCAB_SIZE), 3.0), (generator.randrange(VOCAB_SIZE), -100.0))
    return request(
        name,
        a_prompt(generator),
        sampling=a_sampling(generator),
        seed=generator.randrange(100) if seeded or generator.random() < 0.5 else None,
        max_new_tokens=generator.randrange(0, 50),
        min_new_tokens=generator.choice([0, 0, 9]),
        eos_ids=frozenset(generator.sample(range(VOCAB_SIZE), generator.choice([0, 2, 12]))),
        logit_bias=bias if generator.random() < 0.3 else (),
        num_logprobs=generator.choice([None, 0, 3]),
        prompt_logprobs=generator.random() < 0.2,
        cache_prompt=generator.random() < 0.8,
        grammar=StepGrammar() if generator.random() < 0.3 else None,
    )


def told(reply: Reply) -> tuple[Any, ...]:
    """All that a client can see of a reply, cached tokens aside: those follow the traffic."""
    assert reply.read is not None
    end = replace(reply.finished, cached_tokens=0, diverged_at=None)
    return reply.token_ids, reply.logprobs, reply.read.logprobs, end


def run_traffic(seed: int) -> Engine:
    """Ten requests that come and go in a small pool; each must be told what it is told alone."""
    generator = random.Random(seed)
    size = generator.choice([1, 4, 7])
    engine = make_engine(
        block_size=size,
        # The longest of these requests has room, and never all of them.
        num_blocks=generator.randrange(100, 160) // size,
        slice_len=generator.choice([3, 16]),
        max_running=generator.choice([1, 3, 8]),
    )
    requests = [a_request(f"r{place}", 1000 * seed + place) for place in range(9)]
    # A request of several choices is several sequences with one prompt.
    requests.append(replace(requests[0], id="sibling", seed=1, grammar=None))
    replies = {item.id: Reply() for item in requests}
    left = list(requests)
    while left or engine.has_work:
        if left and generator.random() < 0.4:
            engine.submit(left.pop(0))
        for event in engine.step():
            replies[event.request_id].add(event)
        engine.check_integrity()
    for item in requests:
        same = replace(item, grammar=None if item.grammar is None else StepGrammar())
        alone = run(make_engine(speculates=False), same)[item.id]
        assert told(replies[item.id]) == told(alone)
        if isinstance(item.grammar, StepGrammar) and isinstance(same.grammar, StepGrammar):
            assert item.grammar.accepted == same.grammar.accepted == alone.token_ids
    return engine


@pytest.mark.parametrize("seed", range(5))
def test_any_request_in_any_traffic_is_as_alone_and_without_guesses(seed: int) -> None:
    found = [run_traffic(5 * seed + place).scheduler.metrics for place in range(5)]
    num_drafted = sum(metrics.num_drafted_tokens for metrics in found)
    num_accepted = sum(metrics.num_accepted_tokens for metrics in found)
    assert num_accepted > 50
    assert num_drafted - num_accepted > 20


def test_the_small_pools_of_these_tests_are_fought_over() -> None:
    engine = make_engine(num_blocks=20)
    wanted = [request(f"r{i}", prompt(6, i) * 2, max_new_tokens=40) for i in range(4)]
    replies = run(engine, *wanted)
    assert engine.stats().num_preemptions > 0
    assert engine.scheduler.metrics.num_accepted_tokens > 0
    for item in wanted:
        assert told(replies[item.id]) == told(run(make_engine(speculates=False), item)[item.id])


def as_told(event: EngineEvent) -> EngineEvent:
    """An event without what guessing adds to it."""
    return (
        replace(event, num_drafted=0, was_drafted=False) if isinstance(event, TokenOut) else event
    )


@pytest.mark.parametrize("num_blocks", [40, 256])
def test_one_after_the_other_even_the_cache_is_the_same(num_blocks: int) -> None:
    """Unseeded requests too: the model's stream and the window's beginning are as without."""
    guessing, plain = (make_engine(speculates=on, num_blocks=num_blocks) for on in (True, False))
    text: tuple[int, ...] = ()
    for seed in range(60):
        events = []
        for engine in (guessing, plain):
            wanted = a_request("r", seed, seeded=False)
            # Some go on with what was said before.
            if seed % 3 == 1 and len(text) < 60:
                wanted = replace(wanted, prompt_ids=(*text, *wanted.prompt_ids[:3]))
            engine.submit(wanted)
            events.append([as_told(event) for event in drain(engine)])
        assert events[0] == events[1]
        said = [event.token_id for event in events[0] if isinstance(event, TokenOut)]
        text = (*wanted.prompt_ids, *said)
        for stop in range(0, len(text), 5):
            assert guessing.cached_prefix(text[:stop]) == plain.cached_prefix(text[:stop])
    assert guessing.scheduler.metrics.num_accepted_tokens > 100
    assert guessing.scheduler.metrics.num_steps < plain.scheduler.metrics.num_steps


# --- the end of a reply ------------------------------------------------------------------------

ROUND = (1, 2, 3, 4, 5, 6, 7, 8, 1, 2)
"""What follows is guessed to be 3, 4, 5, 6 and so on."""


def said(script: Iterable[int], engine: Engine, **fields: Any) -> Reply:
    with saying(script):
        return run(engine, request("a", ROUND, **fields))["a"]


def test_a_stop_token_inside_a_guess_ends_there() -> None:
    engine = make_engine(block_size=1)
    reply = said([3, 4, 5, 6], engine, eos_ids=frozenset({6}), max_new_tokens=50)
    assert (reply.token_ids, reply.finished.reason) == ([3, 4, 5, 6], "stop")
    assert reply.finished.completion_tokens == 4
    # The first token comes of the prompt; the other three were one forward, with one guess more.
    assert [len(row.drafts) for plan in plans(engine) for row in plan.decodes] == [4]
    # The last one was never computed as said, and what was guessed behind it is not in the cache.
    assert engine.cached_prefix((*ROUND, 3, 4, 5, 6, 7, 8, 1)).length == len(ROUND) + 3


def test_min_tokens_holds_the_end_back_inside_a_guess() -> None:
    ids = prompt(6, 1) * 2
    freely = run(make_engine(speculates=False), request("a", ids, max_new_tokens=60))["a"]
    loop = freely.token_ids[-1]
    num_accepted = 0
    for at_least in range(40):
        wanted = request(
            "a", ids, max_new_tokens=60, min_new_tokens=at_least, eos_ids=frozenset({loop})
        )
        plain, guessing = make_engine(speculates=False), make_engine()
        expected = run(plain, wanted)["a"]
        assert told(run(guessing, wanted)["a"]) == told(expected)
        num_accepted += guessing.scheduler.metrics.num_accepted_tokens
    assert num_accepted > 40


def test_the_end_comes_as_soon_as_min_tokens_lets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever in a guess that is: no end can be sampled before, and any one after."""
    rows: list[SamplingRow] = []
    real = Sampler.sample

    def watched(sampler: Sampler, logits: Tensor, asked: Sequence[SamplingRow]) -> list[Sampled]:
        rows.extend(asked)
        return real(sampler, logits, asked)

    monkeypatch.setattr(Sampler, "sample", watched)
    for at_least in range(1, 12):
        rows.clear()
        engine = make_engine(block_size=1)
        script = [3, 4, 5, 6, 7, 8, 1, 2] * 4
        ends = frozenset(range(1, 9))
        reply = said(script, engine, eos_ids=ends, min_new_tokens=at_least, max_new_tokens=30)
        assert (reply.token_ids, reply.finished.reason) == (script[: at_least + 1], "stop")
        assert [bool(row.banned_ids) for row in rows] == [True] * at_least + [False]


@pytest.mark.parametrize("max_tokens", range(1, 12))
def test_the_limit_is_exact_and_nothing_is_computed_beyond_it(max_tokens: int) -> None:
    engine = make_engine(block_size=1)
    reply = said([3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5], engine, max_new_tokens=max_tokens)
    assert (len(reply.token_ids), reply.finished.reason) == (max_tokens, "length")
    ends = [row.position + len(row.token_ids) for plan in plans(engine) for row in plan.decodes]
    assert max(ends, default=len(ROUND)) == len(ROUND) + max_tokens - 1


def test_the_pool_need_not_be_larger_for_guesses() -> None:
    engine = make_engine(block_size=1, num_blocks=len(ROUND) + 7)
    reply = said([3, 4, 5, 6, 7, 8, 1, 2], engine, max_new_tokens=8)
    assert reply.token_ids == [3, 4, 5, 6, 7, 8, 1, 2]


def test_a_stop_string_cuts_what_was_said_behind_it() -> None:
    engine = make_engine(block_size=1)
    engine.submit(request("a", ROUND, max_new_tokens=50))
    with saying([3, 4, 5, 6, 7, 8]):
        events = engine.step() + engine.step()
    outs = [event.token_id for event in events if isinstance(event, TokenOut)]
    assert outs == [3, 4, 5, 6, 7, 8]
    (end,) = engine.abort("a", keep_tokens=2)
    assert (end.reason, end.completion_tokens) == ("abort", 2)
    assert engine.cached_prefix((*ROUND, 3, 4, 5, 6, 7, 8)).length == len(ROUND) + 2
    engine.check_integrity()


# --- counts ------------------------------------------------------------------------------------


def test_tokens_say_which_were_guessed() -> None:
    engine = make_engine()
    engine.submit(request("a", ROUND, max_new_tokens=9))
    with saying([3, 4, 5, 6, 7, 8, 1, 50, 60]):
        events = drain(engine)
    outs = [event for event in events if isinstance(event, TokenOut)]
    # Four guesses were right and a token came behind them; of two more the first was right.
    assert [(out.num_drafted, out.was_drafted) for out in outs] == [
        (0, False),
        (4, True),
        *[(0, True)] * 3,
        (0, False),
        (2, True),
        (0, False),
        (0, False),
    ]
    assert sum(out.num_drafted for out in outs) == engine.scheduler.metrics.num_drafted_tokens


@pytest.mark.parametrize("num_sequences", [1, 2, 3, 5, 16, 20])
def test_the_guesses_of_a_step_are_bounded_and_shared_out(num_sequences: int) -> None:
    engine = make_engine(max_running=32, num_blocks=999)
    for place in range(num_sequences):
        engine.submit(request(f"r{place}", prompt(5, place) * 3, max_new_tokens=60))
    drain(engine)
    counts = [[len(row.drafts) for row in plan.decodes] for plan in plans(engine)]
    assert max(map(sum, counts)) <= MAX_DRAFT_ROWS
    assert all(max(c, default=0) <= MAX_DRAFT_ROWS // max(len(c), 1) for c in counts)
    assert engine.scheduler.metrics.num_accepted_tokens > 0


# --- nobody pays for a guess -------------------------------------------------------------------


def test_a_guess_takes_no_block_that_keeps_anything() -> None:
    engine = make_engine(num_blocks=7)
    run(engine, request("kept", prompt(16, 5), max_new_tokens=1))
    assert engine.stats().cached_kv_tokens == 16
    # Twelve positions are free: two guesses behind the ten of the prompt and a token would not fit.
    reply = said([3, 50], engine, eos_ids=frozenset({50}), max_new_tokens=18)
    assert reply.token_ids == [3, 50]
    assert [len(row.drafts) for plan in plans(engine) for row in plan.decodes] == [1]
    assert engine.cached_prefix((*prompt(16, 5), 0)).length == 16


class Poisoned:
    """A runner whose logits are no numbers behind a token, nor in its whole forward."""

    def __init__(self, runner: Any, token_id: int) -> None:
        self._runner = runner
        self._token_id = token_id

    def forward(self, plan: StepPlan) -> Tensor:
        logits: Tensor = self._runner.forward(plan)
        rows = plan.rows()
        for row in plan.decodes:
            if self._token_id in row.token_ids:
                logits[list(rows[row.request_id])] = torch.nan
        return logits


def test_a_guess_that_breaks_the_numbers_harms_nobody() -> None:
    engine = make_engine()
    engine._runner = Poisoned(engine._runner, 5)
    reply = said([3, 4, 60, 61, 60, 61, 60, 61], engine, max_new_tokens=8)
    assert reply.token_ids == [3, 4, 60, 61, 60, 61, 60, 61]
    assert not any(row.drafts for plan in engine._runner._runner.plans[2:] for row in plan.decodes)


def test_numbers_that_break_without_a_guess_fail_as_before() -> None:
    engine = make_engine()
    engine._runner = Poisoned(engine._runner, 5)
    reply = said([3, 4, 5, 6], engine, max_new_tokens=8)
    assert reply.token_ids == [3, 4, 5]
    assert isinstance(reply.end, Failed)


class FailingGrammar(StepGrammar):
    def accept(self, token_id: int) -> None:
        if len(self.accepted) == 3:
            raise RuntimeError("cannot go on")
        self.accepted.append(token_id)

    def mask(self) -> bytes:
        return b"\xff" * (VOCAB_SIZE // 8 + 1)


@pytest.mark.parametrize("speculates", [True, False])
def test_what_was_said_before_a_failure_is_told(speculates: bool) -> None:
    engine = make_engine(speculates=speculates)
    reply = said([3, 4, 5, 6, 7], engine, max_new_tokens=8, grammar=FailingGrammar())
    assert reply.token_ids == [3, 4, 5]
    assert isinstance(reply.end, Failed)
    assert engine.scheduler.metrics.num_generated_tokens == 3
    assert engine.cached_prefix(ROUND).length == 0
    engine.check_integrity()


def test_aborts_between_guesses_leave_nothing_behind() -> None:
    generator = random.Random(2)
    engine = make_engine(num_blocks=40)
    for turn in range(40):
        engine.submit(a_request(f"r{turn}", turn))
        for _ in range(generator.randrange(6)):
            engine.step()
        engine.abort(f"r{turn}", generator.choice([None, 0, 3]))
        engine.check_integrity()
    finish(engine, {})
