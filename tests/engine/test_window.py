"""Where randomness and the penalty window come from."""

from typing import Any

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
