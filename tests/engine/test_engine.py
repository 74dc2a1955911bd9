"""What the engine says, whatever else happens: the equalities that matter to a user."""

import logging
import math
import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from flm.engine import engine as engine_module
from flm.engine.engine import Engine
from flm.engine.protocol import EngineRequest, Failed, Finished
from flm.errors import ContextLengthError, FlmError, InternalError, InvalidRequestError
from flm.types import SamplingParams
from tests.support.engines import (
    GREEDY,
    WARM,
    Reply,
    drain,
    finish,
    make_engine,
    prompt,
    request,
    run,
    text,
)
from tests.support.fake_model import VOCAB_SIZE, FakeModel

SEEDED: dict[str, Any] = {"sampling": WARM, "seed": 11}
STRANGERS = [
    request("s1", prompt(3, 1), max_new_tokens=40),
    request("s2", prompt(90, 2), max_new_tokens=5, sampling=WARM, seed=5),
    request("s3", prompt(17, 3), max_new_tokens=25, sampling=WARM),
]


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "flm"]


# --- the same text, however it is computed -----------------------------------------------------


@pytest.mark.parametrize("fields", [{}, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize(
    "limits",
    [
        {"chunk_len": 512, "slice_len": 512},
        {"chunk_len": 7, "slice_len": 512},
        {"chunk_len": 64, "slice_len": 5},
        {"slice_len": 1},
        {"block_size": 1, "num_blocks": 1000},
        {"block_size": 64, "num_blocks": 16},
    ],
    ids=str,
)
def test_any_chunking_is_as_the_whole_prompt(
    limits: dict[str, int], fields: dict[str, Any]
) -> None:
    expected = text(prompt(70), **fields)
    assert len(expected) == 8
    reply = run(make_engine(**limits), request("a", prompt(70), **fields))["a"]
    assert reply.token_ids == expected


@pytest.mark.parametrize("fields", [{}, SEEDED], ids=["greedy", "seeded"])
def test_among_strangers_is_as_alone(fields: dict[str, Any]) -> None:
    alone = text(prompt(33), max_new_tokens=30, **fields)
    wanted = request("a", prompt(33), max_new_tokens=30, **fields)
    first = run(make_engine(), wanted, *STRANGERS)
    last = run(make_engine(), *STRANGERS, wanted)
    assert first["a"].token_ids == last["a"].token_ids == alone
    for stranger in STRANGERS[:2]:
        fields = {
            "max_new_tokens": stranger.max_new_tokens,
            "sampling": stranger.sampling,
            "seed": stranger.seed,
        }
        assert last[stranger.id].token_ids == text(stranger.prompt_ids, **fields)


@pytest.mark.parametrize("fields", [{}, SEEDED], ids=["greedy", "seeded"])
def test_preempted_and_resumed_is_as_undisturbed(fields: dict[str, Any]) -> None:
    penalised = replace(fields.get("sampling", GREEDY), presence_penalty=1.5, repeat_last_n=6)
    fields = fields | {"sampling": penalised, "max_new_tokens": 30}
    prompts = {f"r{i}": prompt(10 + i, i) for i in range(4)}
    engine = make_engine(num_blocks=16)
    replies = run(engine, *(request(name, ids, **fields) for name, ids in prompts.items()))
    assert engine.stats().num_preemptions > 0
    for name, ids in prompts.items():
        assert replies[name].token_ids == text(ids, **fields)
        assert replies[name].finished.cached_tokens == 0


def test_the_oldest_is_never_preempted_and_everything_ends() -> None:
    engine = make_engine(num_blocks=8)
    names = [f"r{i}" for i in range(6)]
    for index, name in enumerate(names):
        engine.submit(request(name, prompt(5, index), max_new_tokens=28))
    ends: list[str] = []
    while engine.has_work:
        oldest = min(engine.scheduler.running, key=lambda s: s.arrival, default=None)
        ends += [event.request_id for event in engine.step() if isinstance(event, Finished)]
        assert oldest is None or oldest.lease is not None or oldest.id in ends
        engine.check_integrity()
    assert ends == names


@pytest.mark.parametrize("fields", [{}, SEEDED], ids=["greedy", "seeded"])
def test_cached_is_as_recomputed(fields: dict[str, Any]) -> None:
    engine = make_engine()
    first = run(engine, request("a", prompt(70), **fields))["a"]
    again = run(engine, request("b", prompt(70), **fields))["b"]
    longer = run(engine, request("c", prompt(90), **fields))["c"]
    assert first.token_ids == again.token_ids == text(prompt(70), **fields)
    assert longer.token_ids == text(prompt(90), **fields)
    assert (first.read.cached_tokens, again.read.cached_tokens) == (0, 68)
    assert longer.finished.cached_tokens == 68


def test_a_reply_that_is_sent_back_is_found_in_the_cache() -> None:
    engine = make_engine()
    first = run(engine, request("a", prompt(10), max_new_tokens=11))["a"]
    conversation = (*prompt(10), *first.token_ids, 5, 6, 7)
    second = run(engine, request("b", conversation))["b"]
    # Of 21 tokens the last was never computed; 20 fill five blocks.
    assert second.finished.cached_tokens == 20
    assert second.token_ids == text(conversation)


def test_cache_prompt_false_neither_reads_nor_writes() -> None:
    engine = make_engine()
    run(engine, request("a", prompt(40), cache_prompt=False))
    assert engine.cached_prefix_len(prompt(40)) == 0
    run(engine, request("b", prompt(40)))
    reply = run(engine, request("c", prompt(40), cache_prompt=False))["c"]
    assert reply.finished.cached_tokens == 0
    assert reply.token_ids == text(prompt(40))


def test_siblings_share_one_prefill() -> None:
    model = FakeModel()
    engine = make_engine(model)
    siblings = [request(f"n{i}", prompt(70), sampling=WARM, seed=i) for i in range(5)]
    replies = run(engine, *siblings)
    prompt_rows = model.num_rows_computed - sum(len(r.token_ids) - 1 for r in replies.values())
    # The first reads 70 tokens, every other one the two after the last full block.
    assert prompt_rows == 70 + 4 * 2
    for sibling in siblings:
        assert replies[sibling.id].token_ids == text(prompt(70), sampling=WARM, seed=sibling.seed)
    assert replies["n0"].finished.cached_tokens == 0
    assert replies["n4"].finished.cached_tokens == 68


def test_a_shared_beginning_is_waited_for_and_no_longer_than_needed() -> None:
    model = FakeModel()
    engine = make_engine(model, chunk_len=512, slice_len=16)
    engine.submit(request("long", prompt(200), max_new_tokens=1))
    engine.submit(request("short", (*prompt(32), 1, 2, 3), max_new_tokens=1))
    engine.submit(request("other", prompt(9, 5), max_new_tokens=1))
    replies = {name: Reply() for name in ("long", "short", "other")}
    ends: list[str] = []
    while engine.has_work:
        for event in engine.step():
            replies[event.request_id].add(event)
            if replies[event.request_id].end is not None:
                ends.append(event.request_id)
    assert ends == ["other", "short", "long"]
    assert replies["short"].finished.cached_tokens == 32
    assert model.num_rows_computed == 200 + 3 + 9


def test_waiting_for_a_leader_ends_when_the_leader_is_aborted() -> None:
    engine = make_engine()
    engine.submit(request("leader", prompt(100)))
    engine.submit(request("follower", prompt(100)))
    engine.step()
    assert [s.id for s in engine.scheduler.running] == ["leader"]
    engine.abort("leader")
    reply = finish(engine, {"follower": Reply()})["follower"]
    assert reply.token_ids == text(prompt(100))
    assert reply.finished.cached_tokens == 16


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
    assert engine.cached_prefix_len(prompt(21)) == 20


def test_durations_run_from_submission_to_first_to_last_token() -> None:
    ticks = iter(range(1000))
    engine = make_engine()
    engine._clock = engine.scheduler._clock = lambda: float(next(ticks))
    reply = run(engine, request("a", prompt(40), max_new_tokens=4))["a"]
    # Submitted at 0; three slices settle at 1, 2 and 3, three decode steps at 4, 5 and 6.
    assert reply.finished.prefill_duration == 3.0
    assert reply.finished.decoding_duration == 3.0


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
    assert engine.cached_prefix_len(known) == 16
    engine.check_integrity()


def test_keeping_less_than_nothing_keeps_the_prompt() -> None:
    engine = make_engine()
    engine.submit(request("a", prompt(8), max_new_tokens=30))
    for _ in range(12):
        engine.step()
    engine.abort("a", keep_tokens=-5)
    assert engine.stats().cached_kv_tokens == 8


# --- randomness and the window -----------------------------------------------------------------


def test_unseeded_requests_continue_the_models_stream_in_order_of_arrival() -> None:
    requests = [request(f"r{i}", prompt(5, i), sampling=WARM) for i in range(3)]
    together = run(make_engine(seed=3), *requests)
    engine = make_engine(seed=3)
    one_by_one = [run(engine, item)[item.id].token_ids for item in requests]
    assert [together[item.id].token_ids for item in requests] == one_by_one
    assert run(make_engine(seed=4), requests[0])["r0"].token_ids != one_by_one[0]


def test_seeded_and_greedy_requests_do_not_touch_the_stream() -> None:
    unseeded = request("u", prompt(5), sampling=WARM)
    expected = run(make_engine(), unseeded)["u"].token_ids
    others = (request("s", prompt(6), **SEEDED), request("g", prompt(7)))
    assert run(make_engine(), *others, unseeded)["u"].token_ids == expected


def window_at_first_token(engine: Engine, wanted: EngineRequest) -> list[int]:
    engine.submit(wanted)
    sequence = engine.scheduler[wanted.id]
    while not sequence.was_admitted:
        engine.step()
    window = list(sequence.window)
    num_generated = sequence.num_generated
    drain(engine)
    return window[: len(window) - num_generated]


def continued(last_n: int, **fields: Any) -> list[int]:
    """The window with which a request starts that continues a cached reply of 14 tokens, of
    which the last 2 fill no block."""
    engine = make_engine(slice_len=2)
    reply = run(engine, request("a", prompt(6), max_new_tokens=15))["a"]
    conversation = (*prompt(6), *reply.token_ids, *prompt(9, 5))
    params = SamplingParams(temperature=0.0, presence_penalty=1.0, repeat_last_n=last_n)
    follow_up = request("b", conversation, sampling=params, **fields)
    window = window_at_first_token(engine, follow_up)
    assert reply.token_ids[:14][-len(window) :] == window or not window
    return window


def test_an_unseeded_request_starts_with_the_tail_of_the_cached_reply() -> None:
    assert len(continued(64)) == 14
    assert len(continued(-1)) == 14
    assert len(continued(5)) == 5
    assert continued(0) == []


def test_a_seed_empties_the_window() -> None:
    assert continued(64, seed=1) == []


def test_what_is_not_reused_is_not_in_the_window() -> None:
    assert continued(64, cache_prompt=False) == []
    assert continued(64, prompt_logprobs=True) == []


def test_the_window_slides() -> None:
    engine = make_engine()
    params = SamplingParams(temperature=0.0, presence_penalty=1.0, repeat_last_n=3)
    engine.submit(request("a", prompt(6), sampling=params, max_new_tokens=9))
    sequence = engine.scheduler["a"]
    reply = finish(engine, {"a": Reply()})["a"]
    assert list(sequence.window) == reply.token_ids[-3:]


# --- log probabilities -------------------------------------------------------------------------


def direct_logprobs(token_ids: tuple[int, ...]) -> list[float]:
    """Of every token but the first, by one plain forward."""
    engine = make_engine(chunk_len=4096, slice_len=4096)
    rows: list[torch.Tensor] = []
    forward = engine._runner.forward

    def spy(plan: Any) -> torch.Tensor:
        rows.append(forward(plan))
        return rows[-1]

    engine._runner = type("Spy", (), {"forward": staticmethod(spy)})()
    run(engine, request("a", token_ids, max_new_tokens=0, prompt_logprobs=True))
    table = rows[0].double().log_softmax(-1)
    return [float(table[place, token]) for place, token in enumerate(token_ids[1:])]


@pytest.mark.parametrize("max_new_tokens", [0, 3])
@pytest.mark.parametrize("limits", [{}, {"slice_len": 1}, {"slice_len": 500, "chunk_len": 500}])
def test_prompt_logprobs_have_one_entry_per_token(
    limits: dict[str, int], max_new_tokens: int
) -> None:
    token_ids = prompt(150)
    engine = make_engine(**limits)
    run(engine, request("warm", token_ids))
    wanted = request(
        "a", token_ids, prompt_logprobs=True, num_logprobs=2, max_new_tokens=max_new_tokens
    )
    reply = run(engine, wanted)["a"]
    entries = reply.read.logprobs
    assert entries[0] is None
    assert [entry.token_id for entry in entries[1:]] == list(token_ids[1:])
    assert [entry.logprob for entry in entries[1:]] == pytest.approx(
        direct_logprobs(token_ids), abs=1e-4
    )
    assert all(len(entry.top) == 2 for entry in entries[1:])
    assert reply.finished.cached_tokens == 0
    assert len(reply.token_ids) == max_new_tokens


def test_prompt_logprobs_survive_a_preemption() -> None:
    engine = make_engine(num_blocks=23, slice_len=1)
    wanted = request("b", prompt(50, 1), prompt_logprobs=True, max_new_tokens=2)
    expected = run(make_engine(), wanted)["b"].read.logprobs
    replies = run(engine, request("a", prompt(30), max_new_tokens=60), wanted)
    assert engine.stats().num_preemptions > 0
    found = replies["b"].read.logprobs
    assert [e.logprob for e in found[1:]] == pytest.approx(
        [e.logprob for e in expected[1:]], abs=1e-4
    )


def test_logprobs_of_sampled_tokens_come_only_when_asked_for() -> None:
    engine = make_engine()
    replies = run(engine, request("a", prompt(5)), request("b", prompt(5, 1), num_logprobs=3))
    assert replies["a"].logprobs == [None] * 8
    for token_id, entry in zip(replies["b"].token_ids, replies["b"].logprobs, strict=True):
        assert entry.token_id == token_id
        assert entry.logprob <= 0
        assert len(entry.top) == 3
        # Greedy: the token is the best one.
        assert entry.top[0] == (token_id, pytest.approx(entry.logprob))


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
    engine = make_engine(model, num_blocks=20)
    requests = [
        request("good", clean[:20], max_new_tokens=20, logit_bias=((96, -1e9),)),
        request("bad", [*clean[:10], 96, 3, 4, 5]),
        request("more", clean[30:50], max_new_tokens=20),
    ]
    replies = run(engine, *requests)
    assert isinstance(replies["bad"].end, Failed)
    assert isinstance(replies["bad"].end.error, InternalError)
    assert "not numbers" in str(replies["bad"].end.error)
    assert len(replies["good"].token_ids) == len(replies["more"].token_ids) == 20
    # Nothing of it is left for others to find.
    assert engine.cached_prefix_len([*clean[:10], 96, 3, 4, 5]) == 8
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
    real = engine_module.sample

    def sample(logits: torch.Tensor, rows: Any) -> Any:
        if any(row.logit_bias for row in rows):
            raise RuntimeError("bad row")
        return real(logits, rows)

    monkeypatch.setattr(engine_module, "sample", sample)
    replies = run(
        make_engine(),
        request("a", prompt(5), logit_bias=((1, 1.0),)),
        request("b", prompt(6, 1), **SEEDED),
    )
    assert isinstance(replies["a"].end, Failed)
    assert replies["b"].token_ids == text(prompt(6, 1), **SEEDED)


# --- anything ----------------------------------------------------------------------------------


def random_request(name: str, generator: random.Random) -> EngineRequest:
    params = SamplingParams(
        temperature=generator.choice([0.0, 1.0]),
        top_k=VOCAB_SIZE,
        top_p=1.0,
        min_p=0.0,
        presence_penalty=generator.choice([0.0, 1.0]),
        repeat_last_n=generator.choice([-1, 0, 5]),
    )
    return request(
        name,
        prompt(generator.randrange(1, 60), generator.randrange(3)),
        sampling=params,
        seed=generator.randrange(100),
        max_new_tokens=generator.randrange(0, 25),
        min_new_tokens=generator.choice([0, 5]),
        eos_ids=frozenset(generator.sample(range(VOCAB_SIZE), 3)),
        cache_prompt=generator.random() < 0.8,
        prompt_logprobs=generator.random() < 0.2,
    )


@pytest.mark.parametrize("seed", range(6))
def test_random_traffic_in_a_small_pool_says_what_each_would_say_alone(seed: int) -> None:
    generator = random.Random(seed)
    engine = make_engine(
        num_blocks=generator.randrange(25, 60),
        slice_len=generator.choice([3, 16, 64]),
        chunk_len=generator.choice([5, 64]),
        max_running=generator.choice([2, 6]),
    )
    requests = [random_request(f"r{i}", generator) for i in range(14)]
    replies = {item.id: Reply() for item in requests}
    left = list(requests)
    while left or engine.has_work:
        if left and generator.random() < 0.4:
            engine.submit(left.pop())
        if generator.random() < 0.05:
            name = generator.choice(requests).id
            for event in engine.abort(name, generator.choice([None, 2])):
                replies[name].add(event)
        for event in engine.step():
            replies[event.request_id].add(event)
        engine.check_integrity()
    for item in requests:
        reply = replies[item.id]
        alone = run(make_engine(), item)[item.id]
        found = reply.token_ids
        assert found == alone.token_ids[: len(found)]
        if reply.finished.reason != "abort":
            assert reply.finished.reason == alone.finished.reason
            assert len(found) == len(alone.token_ids)
            assert len(reply.read.logprobs) == len(alone.read.logprobs)
