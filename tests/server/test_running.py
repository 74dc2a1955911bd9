"""The registry of requests under way: names, order, and nothing left behind."""

import asyncio

import pytest

from flm.errors import RequestCancelledError
from flm.server.running import RunningRequests

pytestmark = pytest.mark.anyio


class Running:
    """A generation that notes how often it was stopped, until it has ended."""

    def __init__(self) -> None:
        self.num_stops = 0
        self.is_finished = False

    def stop(self) -> bool:
        self.num_stops += 1
        return not self.is_finished


async def test_a_request_is_found_under_each_of_its_names() -> None:
    running, generation = RunningRequests(), Running()
    with running.entered("reply", "mine") as ticket:
        ticket.started(generation)
        assert (len(running), generation.num_stops) == (1, 0)
        assert running.cancel("reply")
        assert running.cancel("mine")
        assert not running.cancel("other")
    assert generation.num_stops == 2
    assert (len(running), running.cancel("mine")) == (0, False)


async def test_all_requests_of_a_name_are_cancelled_and_no_other() -> None:
    running = RunningRequests()
    one, two, other = Running(), Running(), Running()
    with running.entered("1", "same") as first, running.entered("2", "same") as second:
        first.started(one)
        second.started(two)
        with running.entered("3", None) as third:
            third.started(other)
            assert running.cancel("same")
    assert (one.num_stops, two.num_stops, other.num_stops) == (1, 1, 0)
    assert len(running) == 0


async def test_one_name_twice_is_one_entry() -> None:
    running, generation = RunningRequests(), Running()
    with running.entered("same", "same") as ticket:
        ticket.started(generation)
        assert running.cancel("same")
    assert (generation.num_stops, len(running)) == (1, 0)


async def test_what_has_ended_cannot_be_cancelled() -> None:
    running, generation = RunningRequests(), Running()
    generation.is_finished = True
    with running.entered("id") as ticket:
        ticket.started(generation)
        assert not running.cancel("id")


async def test_a_request_that_raises_leaves_nothing_behind() -> None:
    running = RunningRequests()
    with pytest.raises(ValueError, match="broken"), running.entered("id", "mine"):
        raise ValueError("broken")
    assert len(running) == 0


async def test_a_wait_is_cut_short() -> None:
    running = RunningRequests()
    with running.entered("id") as ticket:
        asyncio.get_running_loop().call_soon(running.cancel, "id")
        with pytest.raises(RequestCancelledError), ticket.waiting():
            await asyncio.Event().wait()


async def test_what_was_cancelled_does_not_begin_to_wait() -> None:
    running = RunningRequests()
    with running.entered("id") as ticket:
        assert running.cancel("id")
        with pytest.raises(RequestCancelledError), ticket.waiting():
            await asyncio.sleep(0)


async def test_what_is_cancelled_between_wait_and_start_ends_at_the_start() -> None:
    running, generation = RunningRequests(), Running()
    with running.entered("id") as ticket:
        with ticket.waiting():
            await asyncio.sleep(0)
        assert running.cancel("id")
        ticket.started(generation)
    assert generation.num_stops == 1
