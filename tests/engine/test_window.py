"""Where randomness and the penalty window come from."""

from typing import Any

import pytest

from flm.engine.engine import Engine
from flm.engine.protocol import EngineRequest
from flm.types import SamplingParams
from tests.support.engines import (
    WARM,
    Reply,
    drain,
    finish,
    make_engine,
    prompt,
    request,
    run,
)

SEEDED: dict[str, Any] = {"sampling": WARM, "seed": 11}


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
    """The window with which a request starts that continues a reply of 15 tokens. The last one
    was never computed, so the cache holds 14 of them."""
    engine = make_engine(slice_len=2)
    reply = run(engine, request("a", prompt(6), max_new_tokens=15))["a"]
    conversation = (*prompt(6), *reply.token_ids, *prompt(9, 5))
    params = SamplingParams(temperature=0.0, presence_penalty=1.0, repeat_last_n=last_n)
    follow_up = request("b", conversation, sampling=params, **fields)
    window = window_at_first_token(engine, follow_up)
    assert reply.token_ids[-len(window) :] == window or not window
    return window


def test_an_unseeded_request_starts_with_the_tail_of_the_cached_reply() -> None:
    assert len(continued(64)) == 15
    assert len(continued(-1)) == 15
    assert len(continued(5)) == 5
    assert continued(0) == []


@pytest.mark.parametrize("num_tokens", range(1, 14))
def test_the_tail_does_not_depend_on_where_blocks_end(num_tokens: int) -> None:
    engine = make_engine()
    params = SamplingParams(temperature=0.0, presence_penalty=1.0)
    reply = run(engine, request("a", prompt(6), max_new_tokens=num_tokens))["a"]
    follow_up = (*prompt(6), *reply.token_ids, *prompt(9, 5))
    for name in ("b", "again"):
        wanted = request(name, follow_up, sampling=params, max_new_tokens=2)
        window = window_at_first_token(engine, wanted)
        # At the second time, the cache holds the follow-up's own blocks too.
        assert window == reply.token_ids, name


def test_every_choice_of_a_prompt_has_its_own_tail() -> None:
    engine = make_engine()
    params = SamplingParams(temperature=0.0, presence_penalty=1.0)
    warm = [
        request(f"n{seed}", prompt(6), sampling=WARM, seed=seed, max_new_tokens=9)
        for seed in range(4)
    ]
    for name, reply in run(engine, *warm).items():
        follow_up = (*prompt(6), *reply.token_ids, *prompt(3, 8))
        window = window_at_first_token(engine, request(f"{name}+", follow_up, sampling=params))
        assert window == reply.token_ids


def test_tokens_behind_a_stop_are_not_in_the_tail() -> None:
    engine = make_engine()
    params = SamplingParams(temperature=0.0, presence_penalty=1.0)
    engine.submit(request("a", prompt(6), max_new_tokens=50))
    said = engine.scheduler["a"]
    while said.num_generated < 9:
        engine.step()
    engine.abort("a", keep_tokens=5)
    follow_up = request("b", said.token_ids, sampling=params)
    assert window_at_first_token(engine, follow_up) == said.token_ids[6:11]


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
