"""The thread: submissions, aborts, bounds, death, and a storm of all of them."""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from flm.engine.protocol import EngineClient, EngineEvent, Failed, Finished, TokenOut
from flm.engine.step import StepPlan
from flm.engine.worker import EngineWorker
from flm.errors import (
    ContextLengthError,
    EngineDeadError,
    InternalError,
    InvalidRequestError,
    QueueFullError,
    ShuttingDownError,
)
from tests.support.engines import WARM, Replies, make_engine, prompt, request, text

Make = Callable[..., EngineWorker]


class Gate:
    """A runner whose forwards wait until they are let through, or fail."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.entered = threading.Semaphore(0)
        self.allowed = threading.Semaphore(0)
        self.error: Exception | None = None

    def forward(self, plan: StepPlan) -> torch.Tensor:
        self.entered.release()
        assert self.allowed.acquire(timeout=60)
        if self.error is not None:
            raise self.error
        return self.inner.forward(plan)

    def open(self) -> None:
        """Let everything through from now on."""
        for _ in range(100_000):
            self.allowed.release()


@pytest.fixture
def make() -> Iterator[Make]:
    workers: list[EngineWorker] = []
    gates: list[Gate] = []

    def make(*, gated: bool = False, start: bool = True, **limits: Any) -> EngineWorker:
        engine = make_engine(**limits)
        if gated:
            engine._runner = Gate(engine._runner)
            gates.append(engine._runner)
        worker = EngineWorker(engine)
        workers.append(worker)
        if start:
            worker.start()
        return worker

    yield make
    for gate in gates:
        gate.open()
    for worker in workers:
        worker.close()
        worker.check_integrity()
        assert worker.stats().active_kv_tokens == 0


def gate_of(worker: EngineWorker) -> Gate:
    gate = worker._engine._runner
    assert isinstance(gate, Gate)
    return gate


def test_it_is_an_engine_client(make: Make) -> None:
    client: EngineClient = make()
    assert client.max_kv_tokens == 1024
    assert client.stats().alive


def test_requests_of_several_submissions_run_together(make: Make) -> None:
    worker, replies = make(), Replies()
    worker.submit([request("a", prompt(20)), request("b", prompt(30, 1))], replies)
    worker.submit([request("c", prompt(5, 2), sampling=WARM, seed=3)], replies)
    replies.wait_for("a", "b", "c")
    assert replies["a"].token_ids == text(prompt(20))
    assert replies["b"].token_ids == text(prompt(30, 1))
    assert replies["c"].token_ids == text(prompt(5, 2), sampling=WARM, seed=3)
    stats = worker.stats()
    assert (stats.num_running, stats.num_waiting, stats.active_kv_tokens) == (0, 0, 0)
    assert worker.cached_prefix(prompt(20)).length == 16


def test_submissions_before_the_start_wait_for_it(make: Make) -> None:
    worker, replies = make(start=False), Replies()
    worker.submit([request("a")], replies)
    worker.start()
    replies.wait_for("a")
    assert replies["a"].finished.reason == "length"


# --- admission ---------------------------------------------------------------------------------


def test_a_full_house_takes_all_of_a_submission_or_none(make: Make) -> None:
    worker, replies = make(gated=True, max_running=2, max_waiting=1), Replies()
    called: list[str] = []
    worker.submit([request("a"), request("b")], replies)
    with pytest.raises(QueueFullError) as caught:
        worker.submit([request("c"), request("d")], replies, on_admit=lambda: called.append("cd"))
    assert caught.value.headers == {"Retry-After": "1"}
    assert "--q-len" in str(caught.value)
    worker.submit([request("e")], replies, on_admit=lambda: called.append("e"))
    with pytest.raises(QueueFullError):
        worker.submit([request("f")], replies)
    gate_of(worker).open()
    replies.wait_for("a", "b", "e")
    worker.submit([request("c"), request("d")], replies, on_admit=lambda: called.append("cd"))
    replies.wait_for("c", "d")
    assert called == ["e", "cd"]


def test_the_tokens_that_wait_are_bounded(make: Make) -> None:
    worker, replies = make(gated=True, max_running=1, max_waiting_tokens=100), Replies()
    worker.submit([request("a", prompt(300, 1))], replies)
    gate_of(worker).entered.acquire()
    # It runs; nothing waits, so the next may be as long as it likes.
    worker.submit([request("b", prompt(300, 2))], replies)
    called: list[str] = []
    with pytest.raises(QueueFullError) as caught:
        worker.submit([request("c", [1])], replies, on_admit=lambda: called.append("c"))
    assert caught.value.headers == {"Retry-After": "1"}
    assert "prompts of 300 tokens are waiting, this request adds 1, and 100" in str(caught.value)
    assert "--q-tokens" in str(caught.value)
    assert not called
    worker.abort("b")
    gate_of(worker).open()
    replies.wait_for("a", "b")
    worker.submit([request("c", [1])], replies)
    replies.wait_for("c")


def test_choices_wait_with_one_prompt_and_the_bound_itself_is_let_in(make: Make) -> None:
    worker, replies = make(gated=True, max_running=1, max_waiting_tokens=100), Replies()
    worker.submit([request("a")], replies)
    gate_of(worker).entered.acquire()
    shared = prompt(40)
    worker.submit([request(f"b{i}", shared) for i in range(3)], replies)
    with pytest.raises(QueueFullError):
        worker.submit([request("c", prompt(31, 3)), request("d", prompt(30, 4))], replies)
    worker.submit([request("c", prompt(30, 3)), request("d", prompt(30, 4))], replies)
    gate_of(worker).open()
    replies.wait_for("b2", "d")


def test_without_a_waiting_line_a_free_place_is_enough(make: Make) -> None:
    worker, replies = make(max_running=1, max_waiting=0), Replies()
    for name in ("a", "b"):
        worker.submit([request(name)], replies)
        replies.wait_for(name)


def test_whoever_saw_its_end_finds_room(make: Make) -> None:
    worker, replies = make(max_running=1, max_waiting=0), Replies()
    done = threading.Event()

    def chain(event: EngineEvent) -> None:
        replies(event)
        if isinstance(event, Finished):
            number = int(event.request_id)
            assert worker.stats().active_kv_tokens == 0
            if number == 5:
                done.set()
            else:
                worker.submit([request(str(number + 1))], chain)

    worker.submit([request("0")], chain)
    assert done.wait(60)


def test_an_exception_from_on_admit_queues_nothing(make: Make) -> None:
    worker, replies = make(), Replies()

    def refuse() -> None:
        raise KeyError("no")

    unseeded = request("a", prompt(5), sampling=WARM)
    with pytest.raises(KeyError):
        worker.submit([unseeded], replies, on_admit=refuse)
    assert not worker._sinks
    worker.submit([unseeded], replies)
    replies.wait_for("a")
    fresh, others = make(), Replies()
    fresh.submit([unseeded], others)
    others.wait_for("a")
    assert replies["a"].token_ids == others["a"].token_ids


def test_on_admit_may_look_at_the_engine(make: Make) -> None:
    worker, replies, seen = make(), Replies(), []
    worker.submit(
        [request("a")],
        replies,
        on_admit=lambda: seen.append((worker.stats(), worker.cached_prefix([1, 2]).length)),
    )
    replies.wait_for("a")
    assert len(seen) == 1


def test_one_that_could_never_run_keeps_the_others_out(make: Make) -> None:
    worker, replies, called = make(), Replies(), []
    for wrong, error in [
        (request("b", ()), InvalidRequestError),
        (request("b", prompt(2000)), ContextLengthError),
    ]:
        with pytest.raises(error):
            worker.submit(
                [request("a"), wrong], replies, on_admit=lambda: called.append("admitted")
            )
    assert not worker._sinks
    assert not called


def test_the_same_id_twice_is_refused(make: Make) -> None:
    worker, replies = make(gated=True), Replies()
    with pytest.raises(InternalError):
        worker.submit([request("a"), request("a")], replies)
    worker.submit([request("a")], replies)
    with pytest.raises(InternalError):
        worker.submit([request("a")], replies)
    gate_of(worker).open()
    replies.wait_for("a")
    worker.submit([request("a")], replies_again := Replies())
    replies_again.wait_for("a")


def test_an_empty_submission_is_nothing(make: Make) -> None:
    worker = make()
    worker.submit([], Replies())
    assert not worker._sinks


# --- abort -------------------------------------------------------------------------------------


def test_abort_stops_before_the_next_slice(make: Make) -> None:
    worker, replies = make(gated=True), Replies()
    worker.submit([request("a", prompt(200))], replies)
    gate = gate_of(worker)
    assert gate.entered.acquire(timeout=60)
    worker.abort("a")
    gate.open()
    replies.wait_for("a")
    assert replies["a"].finished.reason == "abort"
    assert replies["a"].read is None
    assert worker._engine.scheduler.metrics.num_prefill_tokens == 16


def test_abort_of_what_waits_and_of_what_is_not_there(make: Make) -> None:
    worker, replies = make(start=False, max_running=1), Replies()
    worker.submit([request("a"), request("b")], replies)
    worker.abort("b")
    worker.abort("nobody")
    worker.start()
    replies.wait_for("a", "b")
    assert replies["b"].finished.reason == "abort"
    assert replies["a"].finished.reason == "length"
    worker.abort("a")


def test_abort_from_the_sink_keeps_what_it_says(make: Make) -> None:
    worker, replies = make(), Replies()

    def stop_at_five(event: EngineEvent) -> None:
        replies(event)
        if isinstance(event, TokenOut) and len(replies["a"].token_ids) == 5:
            worker.abort("a", keep_tokens=4)

    worker.submit([request("a", prompt(4), max_new_tokens=500)], stop_at_five)
    replies.wait_for("a")
    assert replies["a"].finished.completion_tokens == 4
    assert worker.cached_prefix((*prompt(4), *replies["a"].token_ids, 1, 2, 3, 4)).length == 8


# --- failures ----------------------------------------------------------------------------------


def test_a_sink_that_raises_harms_nobody_else(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    worker, replies = make(), Replies()
    calls: list[EngineEvent] = []

    def broken(event: EngineEvent) -> None:
        calls.append(event)
        raise RuntimeError("gone")

    with caplog.at_level(logging.ERROR, logger="flm"):
        worker.submit([request("a", prompt(5), max_new_tokens=900)], broken)
        worker.submit([request("b", prompt(6, 1))], replies)
        replies.wait_for("b")
        worker.submit([request("c", [9])], replies)
        replies.wait_for("c")
    assert replies["b"].token_ids == text(prompt(6, 1))
    assert len(calls) == 1
    assert worker.stats().alive
    assert worker.stats().num_running == 0


def test_the_death_of_the_runner_fails_everything(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    worker, replies = make(gated=True, max_running=1), Replies()
    worker.submit([request("a"), request("b")], replies)
    gate = gate_of(worker)
    assert gate.entered.acquire(timeout=60)
    worker.submit([request("c")], replies)
    gate.error = RuntimeError("the device is gone")
    with caplog.at_level(logging.ERROR, logger="flm"):
        gate.open()
        replies.wait_for("a", "b", "c")
    for name in "abc":
        end = replies[name].end
        assert isinstance(end, Failed)
        assert isinstance(end.error, EngineDeadError)
    assert "the device is gone" in caplog.text
    assert "Traceback" in caplog.text
    assert not worker.stats().alive
    with pytest.raises(EngineDeadError):
        worker.submit([request("d")], replies)
    worker.abort("a")
    worker.close()
    with pytest.raises(EngineDeadError):
        worker.submit([request("d")], replies)


def test_close_fails_what_is_there_and_refuses_what_comes(make: Make) -> None:
    worker, replies = make(gated=True, max_running=1), Replies()
    worker.submit([request("a"), request("b")], replies)
    gate = gate_of(worker)
    assert gate.entered.acquire(timeout=60)
    closer = threading.Thread(target=worker.close)
    closer.start()
    while not worker._is_closing:
        pass
    gate.open()
    replies.wait_for("a", "b")
    closer.join(60)
    assert not worker._thread.is_alive()
    for name in "ab":
        end = replies[name].end
        assert isinstance(end, Failed)
        assert isinstance(end.error, ShuttingDownError)
    with pytest.raises(ShuttingDownError):
        worker.submit([request("c")], replies)
    assert not worker.stats().alive
    worker.close()


def test_close_does_not_wait_for_ever(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    worker, replies = make(gated=True), Replies()
    worker.submit([request("a")], replies)
    assert gate_of(worker).entered.acquire(timeout=60)
    with caplog.at_level(logging.WARNING, logger="flm"):
        worker.close(timeout=0.01)
    assert "still in a step" in caplog.text
    gate_of(worker).open()
    replies.wait_for("a")
    assert isinstance(replies["a"].end, Failed)


def test_close_before_the_start(make: Make) -> None:
    worker, replies = make(start=False), Replies()
    worker.submit([request("a")], replies)
    worker.close()
    assert isinstance(replies["a"].end, Failed)


def test_close_from_a_sink(make: Make) -> None:
    worker, replies = make(), Replies()

    def close(event: EngineEvent) -> None:
        replies(event)
        worker.close()

    worker.submit([request("a", max_new_tokens=900)], close)
    replies.wait_for("a")
    worker._thread.join(60)
    assert not worker._thread.is_alive()
