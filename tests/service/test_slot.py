"""The slot: leases, swaps in order of arrival, failures and cancellations that lose nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from flm.errors import LoadingError, QueueFullError, ShuttingDownError
from flm.service.slot import ExchangeFailedError, ModelSlot

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Model:
    model_id: str


class Shelf:
    """Loads models by name; names starting with ``bad`` fail, and the old one stays."""

    def __init__(self) -> None:
        self.loads: list[str] = []

    async def exchange(self, old: Model | None, model_id: str) -> Model:
        await asyncio.sleep(0)
        if model_id.startswith("bad"):
            raise ExchangeFailedError(old, ValueError(model_id))
        self.loads.append(model_id)
        return Model(model_id)


@asynccontextmanager
async def loaded_slot(max_waiting: int = 8) -> AsyncIterator[tuple[ModelSlot[Model], Shelf]]:
    shelf = Shelf()
    slot: ModelSlot[Model] = ModelSlot(shelf.exchange, max_waiting=max_waiting)
    await slot.load("a")
    yield slot, shelf
    assert slot.num_leases == 0


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_before_the_first_load_a_lease_says_loading() -> None:
    slot: ModelSlot[Model] = ModelSlot(Shelf().exchange, max_waiting=1)
    with pytest.raises(LoadingError):
        async with slot.lease("a"):
            pass


async def test_leases_of_the_loaded_model_run_side_by_side() -> None:
    async with loaded_slot() as (slot, shelf):
        async with slot.lease("a") as one, slot.lease("a") as two:
            assert one is two
            assert slot.num_leases == 2
        assert shelf.loads == ["a"]


async def test_a_swap_waits_for_running_requests_and_later_ones_wait_behind_it() -> None:
    async with loaded_slot() as (slot, shelf):
        order: list[str] = []

        async def use(name: str, label: str) -> None:
            async with slot.lease(name) as model:
                assert model.model_id == name
                order.append(label)

        async with slot.lease("a"):
            swap = asyncio.create_task(use("b", "swap"))
            await settle()
            behind = asyncio.create_task(use("a", "behind"))
            await settle()
            assert order == []
        await asyncio.gather(swap, behind)
        assert order == ["swap", "behind"]
        assert shelf.loads == ["a", "b", "a"]


async def test_a_failed_swap_tells_who_asked_and_loses_nothing() -> None:
    async with loaded_slot() as (slot, _):
        with pytest.raises(ValueError, match="bad"):
            async with slot.lease("bad"):
                pass
        async with slot.lease("a") as model:
            assert model.model_id == "a"


async def test_a_waiter_that_gives_up_leaves_the_line() -> None:
    async with loaded_slot() as (slot, shelf):
        async with slot.lease("a"):
            waiting = asyncio.create_task(slot.load("b"))
            await settle()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            async with slot.lease("a"):
                pass
        assert shelf.loads == ["a"]


async def test_a_waiter_cancelled_as_it_is_granted_gives_its_lease_back() -> None:
    async with loaded_slot() as (slot, _):
        holder = slot.lease("a")
        await holder.__aenter__()
        waiting = asyncio.create_task(slot.load("b"))
        await settle()
        await holder.__aexit__(None, None, None)
        for _ in range(10):
            if slot.num_leases:
                waiting.cancel()
                break
            await asyncio.sleep(0)
        await asyncio.gather(waiting, return_exceptions=True)
        await settle()
        assert slot.num_leases == 0


async def test_a_reload_loads_the_same_model_again() -> None:
    async with loaded_slot() as (slot, shelf):
        await slot.load("a")
        assert shelf.loads == ["a", "a"]


async def test_the_line_is_bounded() -> None:
    async with loaded_slot(max_waiting=1) as (slot, _):
        async with slot.lease("a"):
            waiting = asyncio.create_task(slot.load("b"))
            await settle()
            with pytest.raises(QueueFullError):
                async with slot.lease("a"):
                    pass
        await waiting


async def test_close_refuses_waiters_and_newcomers() -> None:
    async with loaded_slot() as (slot, _), slot.lease("a"):
        waiting = asyncio.create_task(slot.load("b"))
        await settle()
        slot.close()
        with pytest.raises(ShuttingDownError):
            await waiting
        with pytest.raises(ShuttingDownError):
            async with slot.lease("a"):
                pass
