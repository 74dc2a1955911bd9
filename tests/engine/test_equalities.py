"""The same text, however it is computed: the equalities that matter to a user."""

import random
from dataclasses import replace
from typing import Any

import pytest

from flm.engine.protocol import EngineRequest, Finished
from flm.types import SamplingParams
from tests.support.engines import (
    GREEDY,
    WARM,
    Reply,
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
    assert engine.cached_prefix(prompt(40)).length == 0
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


@pytest.mark.parametrize("slice_len", [16, 1024])
def test_a_crowd_reads_its_shared_beginning_once(slice_len: int) -> None:
    model = FakeModel()
    engine = make_engine(model, chunk_len=1024, slice_len=slice_len, num_blocks=1024)
    shared, num_clients = prompt(600), 8
    names = [f"r{i}" for i in range(num_clients)]
    replies = {name: Reply() for name in names}
    for index, name in enumerate(names):
        if index == 5:
            for event in engine.step():
                replies[event.request_id].add(event)
        engine.submit(request(name, (*shared, index, 1, 2, 3, 4), max_new_tokens=1))
    finish(engine, replies)
    assert model.num_rows_computed == 600 + num_clients * 5
    assert [replies[name].finished.cached_tokens for name in names] == [0, *[600] * 7]
    # Who shared all that was cached has nothing to explain, but for the other clients' questions.
    assert {replies[name].finished.diverged_at for name in names[1:]} <= {None, 600}
    for index in (1, 7):
        alone = text((*shared, index, 1, 2, 3, 4), max_new_tokens=1)
        assert replies[names[index]].token_ids == alone


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
