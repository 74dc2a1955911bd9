"""The same request gives the same reply, whatever it is sent with, beside, before and after."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import DEFAULTS, tiny_config
from tests.support.app import RunningApp, running_app
from tests.support.replies import Reply, astreamed, awhole, streamed, whole

# More than a block of the KV cache, so that there is something to reuse.
STORY = (
    "Once upon a time there was a small model that could not say very much, but what it said it "
    "said the same way every time it was asked."
)
HELLO: list[dict[str, Any]] = [
    {"role": "system", "content": "You say it the same way every time."},
    {"role": "user", "content": "What is the capital of France? Über die Brücke: où?"},
]
LONG = "Write a function that returns the sum of the numbers in the list. " * 24

# Greedy, seeded, with penalties, with a stop, with log probabilities: on both endpoints.
BODIES: dict[str, dict[str, Any]] = {
    "greedy chat": {"messages": HELLO, "temperature": 0, "max_tokens": 24},
    "seeded chat": {"messages": HELLO, "seed": 7, "max_tokens": 24},
    "chat with logprobs": {
        "messages": HELLO,
        "seed": -1,
        "max_tokens": 16,
        "logprobs": True,
        "top_logprobs": 3,
    },
    "several choices": {"messages": HELLO, "seed": 2**63 - 2, "n": 3, "max_tokens": 12},
    "greedy text": {"prompt": STORY, "top_k": 1, "max_tokens": 24},
    "seeded text": {"prompt": STORY, "seed": 11, "max_tokens": 24},
    "penalties": {
        "prompt": STORY,
        "seed": 3,
        "max_tokens": 32,
        "repetition_penalty": 1.3,
        "frequency_penalty": 0.4,
        "presence_penalty": 0.2,
        "repeat_last_n": -1,
    },
    "text with logprobs and echo": {
        "prompt": STORY,
        "seed": 5,
        "max_tokens": 12,
        "logprobs": 2,
        "echo": True,
    },
    "stop": {"prompt": STORY, "seed": 12, "max_tokens": 64, "stop": ["e", "the "]},
    "token ids": {"prompt": [5, 9, 300, 44], "seed": 1, "max_tokens": 12, "return_token_ids": True},
    "long prompt": {"prompt": LONG, "seed": 8, "max_tokens": 8},
    "bias": {"prompt": STORY, "seed": 4, "max_tokens": 12, "logit_bias": {"300": 8, "44": -100}},
}


def seeded_strangers(count: int) -> list[dict[str, Any]]:
    return [
        {
            "prompt": f"{number} {STORY} " * (1 + number % 3),
            "seed": 1000 + number,
            "max_tokens": 8 + 3 * number,
            "temperature": 1 + number,
        }
        for number in range(count)
    ]


def fresh(client: httpx.Client, body: dict[str, Any]) -> Reply:
    """The reply when nothing is reused and nobody has set anything."""
    client.delete("/v1/settings")
    return whole(client, **body, cache_prompt=False)


def without_cache_count(reply: Reply) -> Reply:
    """``cached_tokens`` tells how a reply was made, not what it says."""
    assert reply.usage is not None
    return replace(reply, usage={**reply.usage, "cached_tokens": 0}, adaptations=[])


@pytest.mark.parametrize("name", BODIES)
def test_stream_is_non_stream(client: httpx.Client, name: str) -> None:
    body = BODIES[name]
    told = fresh(client, body)
    assert streamed(client, **body, cache_prompt=False) == told
    assert sum(len(choice.text) for choice in told.choices) > 0
    assert all(choice.finish_reason in ("stop", "length") for choice in told.choices)


def test_the_stop_of_the_table_really_stops(client: httpx.Client) -> None:
    reply = fresh(client, BODIES["stop"])
    assert reply.choices[0].finish_reason == "stop"
    assert "e" not in reply.text


@pytest.mark.parametrize("endpoint", [{"messages": HELLO}, {"prompt": STORY}])
def test_choices_are_seeded_requests(client: httpx.Client, endpoint: dict[str, Any]) -> None:
    body = {**endpoint, "max_tokens": 16}
    # Seeds wrap around as 64-bit numbers do; -1 is the last of them.
    for seed in (41, -1):
        many = whole(client, **body, seed=seed, n=3)
        alone = [whole(client, **body, seed=seed + choice) for choice in range(3)]
        assert many.choices == [reply.choices[0] for reply in alone]
        assert len(set(many.texts)) == 3
        assert many.usage is not None
        counts = [reply.usage["completion_tokens"] for reply in alone if reply.usage is not None]
        assert many.usage["completion_tokens"] == sum(counts)


def test_a_list_of_prompts_is_its_single_prompts(client: httpx.Client) -> None:
    prompts = [STORY, "The weather today", LONG]
    body = {"seed": 21, "n": 2, "max_tokens": 10}
    listed = whole(client, **body, prompt=prompts)
    singles = [whole(client, **body, prompt=prompt) for prompt in prompts]
    assert listed.texts == [text for reply in singles for text in reply.texts]
    ids = [whole(client, **body, prompt=prompt, return_token_ids=True) for prompt in prompts]
    tokens = [reply.prompt_token_ids for reply in ids]
    assert whole(client, **body, prompt=tokens).texts == listed.texts
    assert streamed(client, **body, prompt=prompts).texts == listed.texts


async def all_at_once(app: RunningApp, bodies: Sequence[dict[str, Any]]) -> list[Reply]:
    async with app.async_client() as client:
        send = (astreamed, awhole)
        return await asyncio.gather(
            *(send[number % 2](client, **body) for number, body in enumerate(bodies))
        )


@pytest.mark.parametrize("name", BODIES)
def test_among_strangers_is_alone(app: RunningApp, client: httpx.Client, name: str) -> None:
    # Others' settings would stick: the body under test says all of its own.
    body = {**DEFAULTS, **BODIES[name]}
    told = fresh(client, body)
    strangers = seeded_strangers(8)
    replies = asyncio.run(all_at_once(app, [*strangers[:4], body, body, *strangers[4:]]))
    for reply in replies[4:6]:
        assert reply.choices == told.choices
    assert whole(client, **body).choices == told.choices


@pytest.mark.parametrize("name", [name for name in BODIES if "echo" not in name])
def test_cached_is_cold(client: httpx.Client, name: str) -> None:
    body = {**BODIES[name]}
    if "prompt" in body and isinstance(body["prompt"], list):
        body["prompt"] = list(range(3, 100))
    cold = fresh(client, body)
    assert cold.cached_tokens == 0
    warm_up = whole(client, **body)
    warm = whole(client, **body)
    assert warm.cached_tokens > 0
    assert without_cache_count(warm) == without_cache_count(cold) == without_cache_count(warm_up)
    again = whole(client, **body, cache_prompt=False)
    assert again == cold


def test_a_conversation_that_goes_on_reuses_the_reply_too(client: httpx.Client) -> None:
    first = whole(client, messages=HELLO, seed=1, max_tokens=80, ignore_eos=True)
    turn = [
        *HELLO,
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "And then?"},
    ]
    body = {"messages": turn, "seed": 2, "max_tokens": 12}
    cold = whole(client, **body, cache_prompt=False)
    warm = whole(client, **body)
    assert first.usage is not None
    assert warm.cached_tokens >= first.usage["prompt_tokens"] // 32 * 32
    assert warm.choices == cold.choices


# --- other servers -----------------------------------------------------------------------------


@contextmanager
def server(
    model: Path, store: Path, **options: object
) -> Iterator[tuple[RunningApp, httpx.Client]]:
    with running_app(tiny_config(model, **options), store) as app, app.client() as client:
        yield app, client
        app.wait_until_idle()


def test_any_chunk_length_gives_the_same_text(
    client: httpx.Client, tiny_model: Path, store: Path
) -> None:
    bodies = [
        {"prompt": LONG * 2, "seed": 6, "max_tokens": 12, "logprobs": 1},
        {"messages": [{"role": "user", "content": LONG * 2}], "temperature": 0, "max_tokens": 8},
    ]
    told = [fresh(client, body) for body in bodies]
    plan = client.post("/v1/completions/plan", json=bodies[0]).json()
    assert plan["prompt_tokens"] > 1024
    with server(tiny_model, store, prefill_chunk_len=2048) as (_, other):
        whole_plan = other.post("/v1/completions/plan", json=bodies[0]).json()
        assert whole_plan["prefill_chunks"] == [plan["prompt_tokens"]]
        assert [fresh(other, body) for body in bodies] == told


def test_a_pool_too_small_for_all_gives_the_same_texts(
    client: httpx.Client, tiny_model: Path, store: Path
) -> None:
    bodies = [
        {
            **DEFAULTS,
            "prompt": f"{number} {STORY}",
            "seed": number,
            "max_tokens": 120,
            "ignore_eos": True,
            "logprobs": 1,
        }
        for number in range(8)
    ]
    told = [fresh(client, body) for body in bodies]
    with server(tiny_model, store, ctx_len=512, kv_tokens=512) as (app, _):
        replies = asyncio.run(all_at_once(app, bodies))
        assert app.model.engine.stats().num_preemptions > 0
        assert [reply.choices for reply in replies] == [reply.choices for reply in told]


# --- the real model ----------------------------------------------------------------------------


@pytest.mark.real
def test_the_real_model_gives_the_same_text_by_every_road(real_app: RunningApp) -> None:
    question = [{"role": "user", "content": "Name three colours of the rainbow."}]
    bodies: list[dict[str, Any]] = [
        {**DEFAULTS, "messages": question, "temperature": 0, "max_tokens": 8},
        {**DEFAULTS, "prompt": "The old lighthouse", "seed": 6, "temperature": 1, "max_tokens": 6},
    ]
    with real_app.client() as client:
        told = [fresh(client, body) for body in bodies]
        assert all(reply.text.strip() for reply in told)
        for body, reply in zip(bodies, told, strict=True):
            assert streamed(client, **body, cache_prompt=False) == reply
        strangers = [{**body, "max_tokens": 6} for body in seeded_strangers(3)]
        replies = asyncio.run(all_at_once(real_app, [*strangers, *bodies]))
        assert [reply.choices for reply in replies[3:]] == [reply.choices for reply in told]
        many = whole(client, **{**bodies[1], "n": 2})
        assert many.texts == [told[1].text, whole(client, **{**bodies[1], "seed": 7}).text]
