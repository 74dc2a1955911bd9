"""The engine step by step: its log, its ends, and what happens when something fails."""

import logging
import math
from itertools import pairwise
from typing import Any

import pytest
import torch

from flm.engine.protocol import EngineRequest, Failed, Finished
from flm.errors import ContextLengthError, FlmError, InternalError, InvalidRequestError
from flm.sampling.pipeline import Sampler
from tests.support.engines import (
    WARM,
    Reply,
    drain,
    make_engine,
    prompt,
    request,
    run,
    text,
)
from tests.support.fake_model import VOCAB_SIZE, FakeModel

SEEDED: dict[str, Any] = {"sampling": WARM, "seed": 11}


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "flm"]


# --- steps -------------------------------------------------------------------------------------


def test_others_get_a_token_between_the_slices_of_a_long_prompt() -> None:
    engine = make_engine(chunk_len=512, slice_len=16)
    engine.submit(request("short", prompt(3), max_new_tokens=50))
    engine.step()
    engine.submit(request("long", prompt(160, 1), max_new_tokens=1))
    for _ in range(10):
        events = engine.step()
        assert "short" in [event.request_id for event in events]


def test_a_short_prompt_overtakes_a_long_one() -> None:
    engine = make_engine(chunk_len=4096, slice_len=16)
    engine.submit(request("long", prompt(400), max_new_tokens=1))
    engine.step()
    engine.submit(request("short", prompt(10, 1), max_new_tokens=1))
    names = [event.request_id for _ in range(3) for event in engine.step()]
    assert "short" in names


def test_all_decode_rows_run_in_one_forward() -> None:
    model = FakeModel()
    engine = make_engine(model)
    for index in range(6):
        engine.submit(request(f"r{index}", [index + 1], max_new_tokens=5))
    engine.step()
    model.forwards.clear()
    engine.step()
    assert model.forwards == [6]


def test_no_more_than_max_running_run() -> None:
    engine = make_engine(max_running=2)
    for index in range(5):
        engine.submit(request(f"r{index}", [index + 1]))
    engine.step()
    stats = engine.stats()
    assert (stats.num_running, stats.num_waiting) == (2, 3)
    assert len([event for event in drain(engine) if isinstance(event, Finished)]) == 5


def test_a_step_without_work_does_nothing() -> None:
    assert make_engine().step() == []


# --- the log -----------------------------------------------------------------------------------


def test_the_log_has_one_line_per_chunk(caplog: pytest.LogCaptureFixture) -> None:
    engine = make_engine(chunk_len=64, slice_len=16, num_blocks=300)
    with caplog.at_level(logging.INFO, logger="flm"):
        run(engine, request("a", prompt(180)))
        run(engine, request("b", prompt(190)))
        run(engine, request("c", [1]))
    assert messages(caplog) == [
        "Prefill chunk 1/3 with 64 tokens",
        "Prefill chunk 2/3 with 64 tokens",
        "Prefill chunk 3/3 with 52 tokens",
        "Prefill chunk 1/1 with 10 tokens",
        "Prefill chunk 1/1 with 1 tokens",
    ]


def test_a_line_knows_its_request(caplog: pytest.LogCaptureFixture) -> None:
    engine = make_engine(chunk_len=64)
    with caplog.at_level(logging.INFO, logger="flm"):
        run(engine, request("a", prompt(100)))
        run(engine, request("b", [1]))
    assert [record.__dict__["request_id"] for record in caplog.records] == ["a", "a", "b"]


def test_a_line_stands_at_the_start_of_its_chunk(caplog: pytest.LogCaptureFixture) -> None:
    engine = make_engine(chunk_len=64, slice_len=16)
    engine.submit(request("a", prompt(100)))
    with caplog.at_level(logging.INFO, logger="flm"):
        counts = [(engine.step(), len(messages(caplog)))[1] for _ in range(5)]
    assert counts == [1, 1, 1, 1, 2]


def test_the_log_can_be_silenced(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="flm"):
        run(make_engine(log_prefill=False), request("a", prompt(10)))
    assert messages(caplog) == []


# --- ends --------------------------------------------------------------------------------------


def test_an_end_token_ends_with_stop_and_counts() -> None:
    free = text(prompt(20))
    reply = run(make_engine(), request("a", prompt(20), eos_ids=frozenset({free[3]})))["a"]
    assert reply.token_ids == free[: free.index(free[3]) + 1]
    assert reply.finished.reason == "stop"
    assert reply.finished.completion_tokens == len(reply.token_ids)


def test_an_end_token_cannot_come_before_min_new_tokens() -> None:
    free = text(prompt(20), max_new_tokens=40)
    engine = make_engine()
    wanted = request(
        "a",
        prompt(20),
        max_new_tokens=40,
        min_new_tokens=6,
        eos_ids=frozenset(range(VOCAB_SIZE)) - {free[0]},
    )
    reply = run(engine, wanted)["a"]
    assert reply.token_ids[:6] == [free[0]] * 6
    assert reply.finished.reason in ("stop", "length")
    eos = request("b", prompt(20), min_new_tokens=3, eos_ids=frozenset({free[0]}))
    assert free[0] not in run(engine, eos)["b"].token_ids[:3]


@pytest.mark.parametrize("max_new_tokens", [1, 2, 8])
def test_exactly_max_new_tokens(max_new_tokens: int) -> None:
    reply = run(make_engine(), request("a", prompt(20), max_new_tokens=max_new_tokens))["a"]
    assert reply.token_ids == text(prompt(20))[:max_new_tokens]
    assert reply.finished.reason == "length"


def test_zero_new_tokens_reads_the_prompt_only() -> None:
    model = FakeModel()
    engine = make_engine(model)
    reply = run(engine, request("a", prompt(20), max_new_tokens=0))["a"]
    assert reply.token_ids == []
    assert reply.read is not None
    assert (reply.finished.reason, reply.finished.completion_tokens) == ("length", 0)
    assert model.num_rows_computed == 20
    assert engine.cached_prefix(prompt(21)).length == 20


def test_durations_run_from_submission_to_first_to_last_token() -> None:
    ticks = iter(range(1000))
    engine = make_engine()
    engine._clock = engine.scheduler._clock = lambda: float(next(ticks))
    reply = run(engine, request("a", prompt(40), max_new_tokens=4))["a"]
    # Submitted at 0 and started at 1; three slices settle at 2, 3 and 4, three decode steps at 5,
    # 6 and 7.
    assert reply.finished.waiting_duration == 1.0
    assert reply.finished.prefill_duration == 4.0
    assert reply.read is not None
    assert reply.read.duration == 3.0
    assert reply.finished.decoding_duration == 3.0


def test_progress_is_told_for_every_slice_to_those_who_ask() -> None:
    ticks = iter(range(1000))
    engine = make_engine()
    run(engine, request("first", prompt(12)))
    engine._clock = engine.scheduler._clock = lambda: float(next(ticks))
    replies = run(
        engine,
        request("a", prompt(40), report_progress=True, max_new_tokens=2),
        request("b", prompt(40, seed=5), max_new_tokens=2),
    )
    told = replies["a"].progress
    assert (told[0].cached_tokens, told[0].read_tokens) == (12, 28)
    assert told[-1].read_tokens == 40
    assert all(one.duration < other.duration for one, other in pairwise(told))
    assert replies["b"].progress == []


# --- abort -------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_steps", [0, 1, 2, 3, 5, 9])
def test_abort_at_any_stage_frees_everything(num_steps: int) -> None:
    engine = make_engine()
    wanted = request("a", prompt(40), max_new_tokens=20)
    engine.submit(wanted)
    events = [event for _ in range(num_steps) for event in engine.step()]
    (end,) = engine.abort("a")
    assert end.reason == "abort"
    assert end.completion_tokens == sum(type(event).__name__ == "TokenOut" for event in events)
    assert not engine.has_work
    assert engine.stats().active_kv_tokens == 0
    engine.check_integrity()
    assert engine.abort("a") == []
    assert run(engine, wanted)["a"].token_ids == text(prompt(40), max_new_tokens=20)


def test_tokens_after_a_stop_string_do_not_stay_in_the_cache() -> None:
    engine = make_engine()
    engine.submit(request("a", prompt(10), max_new_tokens=30))
    reply = Reply()
    while len(reply.token_ids) < 20:
        for event in engine.step():
            reply.add(event)
    (end,) = engine.abort("a", keep_tokens=7)
    assert end.completion_tokens == 7
    known = (*prompt(10), *reply.token_ids)
    assert engine.cached_prefix(known).length == 16
    engine.check_integrity()


def test_keeping_less_than_nothing_keeps_the_prompt() -> None:
    engine = make_engine()
    engine.submit(request("a", prompt(8), max_new_tokens=30))
    for _ in range(12):
        engine.step()
    engine.abort("a", keep_tokens=-5)
    assert engine.stats().cached_kv_tokens == 8


# --- refusals and failures ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (request("a", ()), InvalidRequestError),
        (request("a", (1, -1)), InvalidRequestError),
        (request("a", (1, VOCAB_SIZE)), InvalidRequestError),
        (request("a", prompt(1025), max_new_tokens=1), ContextLengthError),
        (request("a", prompt(1000), max_new_tokens=26), ContextLengthError),
    ],
)
def test_what_could_never_run_is_refused(wanted: EngineRequest, error: type[FlmError]) -> None:
    engine = make_engine()
    with pytest.raises(error):
        engine.submit(wanted)
    assert not engine.has_work


def test_a_sequence_may_fill_the_pool_to_the_last_position() -> None:
    engine = make_engine(num_blocks=8)
    replies = run(engine, request("b", prompt(9, 1)), request("a", prompt(25), max_new_tokens=8))
    assert replies["a"].token_ids == text(prompt(25))


def test_logits_without_numbers_fail_only_their_request() -> None:
    model = FakeModel()
    model.embedding[96] = math.nan
    clean = list(range(1, 90))
    engine = make_engine(model, num_blocks=30)
    poison = [*clean[:10], 96, *clean[60:]]
    requests = [
        request("good", clean[:20], max_new_tokens=20, logit_bias=((96, -1e9),)),
        request("bad", poison),
        request("more", clean[30:50], max_new_tokens=20),
    ]
    replies = run(engine, *requests)
    assert isinstance(replies["bad"].end, Failed)
    assert isinstance(replies["bad"].end.error, InternalError)
    assert "not numbers" in str(replies["bad"].end.error)
    assert len(replies["good"].token_ids) == len(replies["more"].token_ids) == 20
    # Nothing of it is left for others to find.
    assert engine.cached_prefix(poison).length == 8
    for seed in range(3):
        again = [token % 90 for token in prompt(40, seed)]
        assert len(run(engine, request("again", again, max_new_tokens=30))["again"].token_ids) == 30


class FailingGrammar:
    """Raises at a chosen call."""

    def __init__(self, *, at_mask: int = -1, at_accept: int = -1) -> None:
        self.at_mask, self.at_accept = at_mask, at_accept

    def mask(self) -> bytes | None:
        self.at_mask -= 1
        if self.at_mask == -1:
            raise RuntimeError("mask")
        return None

    def accept(self, token_id: int) -> None:
        self.at_accept -= 1
        if self.at_accept == -1:
            raise RuntimeError("accept")


@pytest.mark.parametrize("grammar", [{"at_mask": 2}, {"at_accept": 2}], ids=str)
def test_a_failing_grammar_fails_only_its_request(grammar: dict[str, int]) -> None:
    replies = run(
        make_engine(),
        request("a", prompt(5), grammar=FailingGrammar(**grammar)),
        request("b", prompt(6, 1)),
    )
    assert isinstance(replies["a"].end, Failed)
    assert len(replies["a"].token_ids) == 2
    assert replies["b"].token_ids == text(prompt(6, 1))


class OnlyGrammar:
    """Allows one token at a time, counting up."""

    def __init__(self) -> None:
        self.next = 10

    def mask(self) -> bytes | None:
        return (1 << self.next).to_bytes(-(-VOCAB_SIZE // 8), "little")

    def accept(self, token_id: int) -> None:
        assert token_id == self.next
        self.next += 1


def test_a_grammar_follows_its_sequence_also_through_a_preemption() -> None:
    engine = make_engine(num_blocks=12)
    replies = run(
        engine,
        request("a", prompt(10), max_new_tokens=30),
        request("b", prompt(5, 1), max_new_tokens=30, grammar=OnlyGrammar()),
    )
    assert engine.stats().num_preemptions > 0
    assert replies["b"].token_ids == list(range(10, 40))


def test_sampling_that_fails_in_a_batch_finds_the_culprit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = Sampler.sample

    def sample(sampler: Sampler, logits: torch.Tensor, rows: Any) -> Any:
        if any(row.logit_bias for row in rows):
            raise RuntimeError("bad row")
        return real(sampler, logits, rows)

    monkeypatch.setattr(Sampler, "sample", sample)
    replies = run(
        make_engine(),
        request("a", prompt(5), logit_bias=((1, 1.0),)),
        request("b", prompt(6, 1), **SEEDED),
    )
    assert isinstance(replies["a"].end, Failed)
    assert replies["b"].token_ids == text(prompt(6, 1), **SEEDED)


class NothingGrammar:
    """Allows nothing from the third token on."""

    def __init__(self) -> None:
        self.num_accepted = 0

    def mask(self) -> bytes | None:
        return None if self.num_accepted < 2 else bytes(-(-VOCAB_SIZE // 8))

    def accept(self, token_id: int) -> None:
        assert 0 <= token_id < VOCAB_SIZE
        self.num_accepted += 1


@pytest.mark.parametrize("fields", [{}, SEEDED, {"num_logprobs": 2}], ids=str)
def test_when_no_token_may_follow_only_that_request_fails(fields: dict[str, Any]) -> None:
    grammar = NothingGrammar()
    replies = run(
        make_engine(),
        request("a", prompt(5), grammar=grammar, **fields),
        request("b", prompt(6, 1)),
    )
    end = replies["a"].end
    assert isinstance(end, Failed)
    assert isinstance(end.error, InvalidRequestError)
    assert len(replies["a"].token_ids) == grammar.num_accepted == 2
    assert replies["b"].token_ids == text(prompt(6, 1))


def test_end_tokens_without_logits_are_no_trouble() -> None:
    wanted = request("a", prompt(5), min_new_tokens=4, eos_ids=frozenset({VOCAB_SIZE + 5}))
    assert run(make_engine(), wanted)["a"].token_ids == text(prompt(5))
