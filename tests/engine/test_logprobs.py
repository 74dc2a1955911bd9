"""Log probabilities of prompts and of sampled tokens."""

from typing import Any

import pytest
import torch

from tests.support.engines import (
    make_engine,
    prompt,
    request,
    run,
)


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
