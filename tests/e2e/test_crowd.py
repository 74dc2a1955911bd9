"""Sixteen clients at once, a third of which leave mid-way: nobody else notices."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import DEFAULTS, tiny_config
from tests.e2e.test_equalities import HELLO, STORY
from tests.support.app import RunningApp, running_app, wait_until
from tests.support.replies import CHAT, COMPLETIONS, Reply, astreamed, awhole, path_of, whole

NUM_CLIENTS = 16
FOREVER = 1500


def stayer(number: int, rng: random.Random, max_repeats: int, max_tokens: int) -> dict[str, Any]:
    """A client that waits for its reply: any endpoint, any length."""
    text = f"{number} {STORY} " * rng.randint(1, max_repeats)
    body = {
        **DEFAULTS,
        "seed": number,
        "max_tokens": rng.randint(1, max_tokens),
        "n": rng.choice((1, 1, 2)),
        "logprobs": 1 if number % 2 else None,
    }
    if number % 2:
        return {**body, "prompt": text}
    return {**body, "logprobs": True, "messages": [{"role": "user", "content": text}]}


def leaver(number: int, max_tokens: int) -> dict[str, Any]:
    """A client that would wait for a long time."""
    body = {**DEFAULTS, "seed": number, "max_tokens": max_tokens, "ignore_eos": True}
    if number % 2:
        return {**body, "prompt": f"{number} {STORY}"}
    return {**body, "messages": [*HELLO, {"role": "user", "content": f"{number}"}]}


async def leave_a_stream(client: httpx.AsyncClient, body: dict[str, Any], num_lines: int) -> None:
    """Read a little of a stream and close the connection."""
    async with client.stream("POST", path_of(body), json={**body, "stream": True}) as reply:
        assert reply.status_code == 200
        lines = reply.aiter_lines()
        for _ in range(num_lines):
            await anext(lines)


async def leave_unanswered(client: httpx.AsyncClient, body: dict[str, Any], wait_s: float) -> None:
    """Ask for a whole reply and close the connection before it is there."""
    asking = asyncio.create_task(client.post(path_of(body), json=body))
    await asyncio.sleep(wait_s)
    assert not asking.done(), "the reply came too early for this test"
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def storm(
    app: RunningApp, stayers: Sequence[dict[str, Any]], leavers: Sequence[dict[str, Any]]
) -> list[Reply]:
    """Everybody at once, the leavers in between; the replies of the stayers."""
    async with app.async_client() as client:
        asking: list[asyncio.Task[Any]] = []
        for number, body in enumerate(stayers):
            send = astreamed if number % 3 else awhole
            asking.append(asyncio.create_task(send(client, **body)))
        # A connection that is closed ends all that httpx runs over it: leavers have their own.
        leaving = [
            asyncio.create_task(leave(app, number, body)) for number, body in enumerate(leavers)
        ]
        await asyncio.gather(*leaving)
        return await asyncio.gather(*asking)


async def leave(app: RunningApp, number: int, body: dict[str, Any]) -> None:
    async with app.async_client() as client:
        if number % 2:
            await leave_unanswered(client, body, wait_s=0.15 * number)
        else:
            await leave_a_stream(client, body, num_lines=4 * number + 1)


def run_storm(
    app: RunningApp,
    seed: int,
    *,
    num_clients: int = NUM_CLIENTS,
    max_repeats: int = 8,
    max_tokens: int = 24,
) -> None:
    rng = random.Random(seed)
    num_leavers = num_clients // 3
    num_stayers = num_clients - num_leavers
    stayers = [stayer(number, rng, max_repeats, max_tokens) for number in range(num_stayers)]
    leavers = [leaver(100 + number, FOREVER) for number in range(num_leavers)]
    with app.client() as client:
        alone = [whole(client, **body, cache_prompt=False) for body in stayers]
    together = asyncio.run(storm(app, stayers, leavers))
    assert [reply.choices for reply in together] == [reply.choices for reply in alone]
    app.wait_until_idle()


@pytest.mark.parametrize("seed", [1, 2])
def test_sixteen_clients_a_third_of_which_leave(app: RunningApp, seed: int) -> None:
    run_storm(app, seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(10, 40))
def test_many_crowds(app: RunningApp, seed: int) -> None:
    run_storm(app, seed, num_clients=24)


def test_a_crowd_in_a_pool_too_small_for_it(tiny_model: Path, store: Path) -> None:
    config = tiny_config(tiny_model, ctx_len=512, kv_tokens=768)
    with running_app(config, store) as app:
        run_storm(app, 3, max_repeats=1, max_tokens=150)
        assert app.model.engine.stats().num_preemptions > 0


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_whoever_leaves_frees_everything(app: RunningApp, path: str) -> None:
    body = leaver(0 if path == CHAT else 1, FOREVER)
    assert path_of(body) == path
    with (
        app.client() as client,
        client.stream("POST", path, json={**body, "stream": True}) as reply,
    ):
        next(reply.iter_lines())
        assert app.model.engine.stats().active_kv_tokens > 0
    wait_until(lambda: app.service._slot.num_leases == 0)
    app.wait_until_idle()


def test_one_that_leaves_while_it_waits_is_never_run(tiny_model: Path, store: Path) -> None:
    with running_app(tiny_config(tiny_model, parallel=1), store) as app:
        engine = app.model.engine
        with app.client() as one, app.client() as two:
            body = {**leaver(1, FOREVER), "stream": True}
            with one.stream("POST", COMPLETIONS, json=body):
                wait_until(lambda: engine.stats().num_running == 1)
                with two.stream("POST", COMPLETIONS, json=body):
                    wait_until(lambda: engine.stats().num_waiting == 1)
                wait_until(lambda: engine.stats().num_waiting == 0)
                assert engine.stats().num_running == 1
        app.wait_until_idle()


@pytest.mark.real
def test_a_crowd_at_the_real_model(real_app: RunningApp) -> None:
    run_short_storm(real_app, num_clients=9, max_tokens=4)


@pytest.mark.real
@pytest.mark.full
def test_a_long_crowd_at_the_real_model(real_app: RunningApp) -> None:
    run_short_storm(real_app, num_clients=24, max_tokens=40)


def run_short_storm(app: RunningApp, *, num_clients: int, max_tokens: int) -> None:
    """As ``run_storm``, for a model that takes its time."""
    num_leavers = num_clients // 3
    stayers: list[dict[str, Any]] = [
        {
            **DEFAULTS,
            "temperature": 0.8 * (number % 3),
            "messages": [{"role": "user", "content": f"{number}: " + "tell me more " * number}],
            "seed": number,
            "max_tokens": 1 + (number + max_tokens) % max_tokens,
        }
        for number in range(num_clients - num_leavers)
    ]
    leavers = [leaver(100 + number, FOREVER) for number in range(num_leavers)]
    with app.client() as client:
        alone = [whole(client, **body, cache_prompt=False) for body in stayers]
    together = asyncio.run(storm(app, stayers, leavers))
    assert [reply.choices for reply in together] == [reply.choices for reply in alone]
    app.wait_until_idle()
