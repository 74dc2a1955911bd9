"""Repeatable output over HTTP: what a seed fixes, what it does not, and what needs none."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import DEFAULTS
from tests.e2e.test_equalities import STORY, all_at_once
from tests.support.app import RunningApp
from tests.support.replies import CHAT, COMPLETIONS, events_of, streamed, whole

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hi, and some words more"}]
ENDPOINTS: list[dict[str, Any]] = [{"messages": HELLO}, {"prompt": STORY}]
# The cache gives whole blocks back, so there must be one.
REAL: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": STORY}]},
    {"prompt": f"{STORY} {STORY}"},
]
both_endpoints = pytest.mark.parametrize("prompt", ENDPOINTS, ids=["chat", "completions"])
SEEDS = (0, 1, -1, 42, 2**31, 2**63 - 1, -(2**63))


@both_endpoints
def test_every_seed_gives_its_text_again_streamed_or_not(
    client: httpx.Client, prompt: dict[str, Any]
) -> None:
    texts = set()
    for seed in SEEDS:
        body = {**prompt, "seed": seed, "max_tokens": 16}
        told = whole(client, **body)
        assert whole(client, **body).choices == told.choices
        assert streamed(client, **body).choices == told.choices
        texts.add(told.text)
    assert len(texts) == len(SEEDS)


@both_endpoints
def test_without_a_seed_the_texts_differ(client: httpx.Client, prompt: dict[str, Any]) -> None:
    assert len({whole(client, **prompt, max_tokens=16).text for _ in range(4)}) == 4


@both_endpoints
def test_unseeded_and_seeded_requests_do_not_disturb_a_seed(
    client: httpx.Client, prompt: dict[str, Any]
) -> None:
    body = {**prompt, "seed": 9, "max_tokens": 12}
    told = whole(client, **body)
    for number in range(3):
        whole(client, **prompt, max_tokens=1 + number)
        whole(client, **prompt, max_tokens=3, seed=number)
        assert whole(client, **body).choices == told.choices


@both_endpoints
def test_a_seed_does_not_fix_what_sticks(client: httpx.Client, prompt: dict[str, Any]) -> None:
    bare = {**prompt, "seed": 3, "max_tokens": 24}
    full = {**bare, **DEFAULTS}
    told = whole(client, **bare)
    assert whole(client, **full).choices == told.choices
    for changed in ({"temperature": 0.01}, {"top_k": 1}, {"presence_penalty": 50, "top_k": 100}):
        whole(client, prompt="another client", max_tokens=1, **changed)
        assert whole(client, **bare).text != told.text, changed
        # Who sends every field is not reached by others.
        assert whole(client, **full).choices == told.choices


@pytest.mark.parametrize("greedy", [{"temperature": 0}, {"top_k": 1}], ids=str)
@both_endpoints
def test_greedy_needs_no_seed_and_penalties_still_act(
    client: httpx.Client, prompt: dict[str, Any], greedy: dict[str, Any]
) -> None:
    body = {**prompt, **greedy, "max_tokens": 24, "ignore_eos": True}
    told = whole(client, **body)
    assert whole(client, **body, seed=4).choices == told.choices
    # An unseeded request that goes on in the cache would start with a tail in its window.
    penal = {**body, "frequency_penalty": 50, "cache_prompt": False}
    penalised = whole(client, **penal)
    assert penalised.text != told.text
    assert whole(client, **penal).choices == penalised.choices
    assert streamed(client, **penal).choices == penalised.choices


def test_different_logprobs_of_the_same_request_would_tell_of_the_prompt(
    client: httpx.Client,
) -> None:
    """In the exact mode they are the same, cold or cached."""
    body = {"prompt": STORY, "seed": 8, "max_tokens": 8, "logprobs": 3}
    cold = whole(client, **body, cache_prompt=False)
    assert cold.cached_tokens == 0
    whole(client, **body)
    warm, again = whole(client, **body), streamed(client, **body)
    assert warm.cached_tokens > 0
    assert cold.choices[0].logprobs == warm.choices[0].logprobs == again.choices[0].logprobs


# --- no fingerprint to compare -----------------------------------------------------------------


def test_a_fingerprint_says_nothing(client: httpx.Client) -> None:
    found = []
    for path, prompt in ((CHAT, ENDPOINTS[0]), (COMPLETIONS, ENDPOINTS[1])):
        body = {**prompt, "seed": 1, "max_tokens": 3}
        assert "system_fingerprint" not in client.post(path, json=body).json()
        for _ in range(2):
            lines = client.post(path, json={**body, "stream": True}).text.splitlines()
            (fingerprint,) = {chunk["system_fingerprint"] for chunk in events_of(lines)}
            found.append(fingerprint)
    assert len(set(found)) == 4


# --- the real model ----------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize("prompt", REAL, ids=["chat", "completions"])
def test_the_real_model_before_among_and_after_others(
    real_app: RunningApp, prompt: dict[str, Any]
) -> None:
    """The same text with the cache cold and warm, streamed and not, whatever others do and set."""
    body = {**DEFAULTS, **prompt, "temperature": 1.0, "top_k": 40, "seed": -7, "max_tokens": 4}
    loud = {"prompt": "Loud", "max_tokens": 2, "temperature": 3, "presence_penalty": 2}
    stranger = {"prompt": "Strange", "seed": 1, "max_tokens": 3, "top_k": 5}
    with real_app.client() as client:
        cold = whole(client, **body, cache_prompt=False)
        assert cold.text
        assert streamed(client, **body, cache_prompt=False) == cold
        first = whole(client, **body)
        replies = asyncio.run(all_at_once(real_app, [loud, stranger, body, body]))
        whole(client, **loud)
        warm = [send(client, **body) for send in (whole, streamed)]
    assert all(reply.cached_tokens > 0 for reply in warm)
    assert all(reply.choices == cold.choices for reply in (first, *replies[-2:], *warm))
