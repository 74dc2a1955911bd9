"""The policy alone: plans are settled by hand, no model anywhere."""

from typing import Any

import pytest

from flm.engine.protocol import EngineConfig, EngineEvent, Finished, TokenOut
from flm.engine.scheduler import Scheduler
from flm.engine.sequence import Sequence
from flm.engine.step import StepPlan, StepResult
from flm.errors import InternalError
from flm.kvcache.manager import KVCacheManager
from tests.support.engines import request

EVENTS = list[EngineEvent]


class Bench:
    """A scheduler whose every sampled token is the length of its sequence."""

    def __init__(self, **limits: Any) -> None:
        config = EngineConfig(
            **{"block_size": 4, "num_blocks": 16, "chunk_len": 16, "slice_len": 8} | limits
        )
        self.cache = KVCacheManager(config.num_blocks, config.block_size)
        self.scheduler = Scheduler(config, self.cache, clock=lambda: 0.0)
        self.num_arrivals = 0

    def add(self, name: str, prompt_len: int, **fields: Any) -> Sequence:
        fields = {"max_new_tokens": 4} | fields
        prompt_ids = fields.pop("prompt_ids", [ord(name[0])] * prompt_len)
        sequence = Sequence(
            request(name, prompt_ids, **fields),
            arrival=self.num_arrivals,
            submitted_at=0.0,
            random=None,
        )
        self.num_arrivals += 1
        self.scheduler.add(sequence)
        return sequence

    def settle(self, plan: StepPlan, **failures: InternalError) -> EVENTS:
        tokens = {}
        for name, rows in plan.rows().items():
            if len(rows) > 0 and name not in failures:
                sequence = self.scheduler[name]
                tokens[name] = (TokenOut(name, len(sequence.token_ids)),)
        events = self.scheduler.settle(plan, StepResult(tokens, {}, failures))
        self.cache.check_integrity()
        return events

    def step(self) -> StepPlan:
        plan = self.scheduler.plan()
        self.cache.check_integrity()
        self.settle(plan)
        return plan

    @property
    def running(self) -> list[str]:
        return [sequence.id for sequence in self.scheduler.running]

    @property
    def waiting(self) -> list[str]:
        return [sequence.id for sequence in self.scheduler.waiting]


def test_a_prompt_runs_in_slices_within_chunks_and_then_decodes() -> None:
    bench = Bench()
    bench.add("a", 21, max_new_tokens=2)
    plans = [bench.step() for _ in range(4)]
    chunks = [plan.chunks[0] for plan in plans[:3]]
    assert [(c.start, len(c.token_ids), c.num_logits) for c in chunks] == [
        (0, 8, 0),
        (8, 8, 0),
        (16, 5, 1),
    ]
    assert [c.mark is not None for c in chunks] == [True, False, True]
    (row,) = plans[3].decodes
    assert (row.token_id, row.position) == (21, 21)
    assert plans[3].chunks == ()
    assert not bench.scheduler.has_work


def test_the_plan_covers_every_row_it_writes() -> None:
    bench = Bench()
    bench.add("a", 7)
    for _ in range(4):
        plan = bench.step()
        for chunk in plan.chunks:
            assert len(chunk.block_table) * 4 >= chunk.start + len(chunk.token_ids)
        for row in plan.decodes:
            assert len(row.block_table) * 4 > row.position


def test_a_block_table_is_handed_on_as_the_same_object_until_it_grows() -> None:
    bench = Bench()
    bench.add("a", 4, max_new_tokens=10)
    bench.step()
    tables = [bench.step().decodes[0].block_table for _ in range(5)]
    assert tables[0] is tables[1] is tables[2] is tables[3]
    assert tables[4] == (*tables[0], 2)


def test_rows_follow_the_plan() -> None:
    bench = Bench(slice_len=64)
    bench.add("a", 3)
    bench.step()
    bench.add("b", 5, prompt_logprobs=True)
    bench.add("c", 2, max_new_tokens=0)
    plan = bench.scheduler.plan()
    assert plan.rows() == {"a": range(1), "b": range(1, 6), "c": range(6, 6)}
    assert plan.num_rows == 6


def test_the_latest_gives_way_and_comes_back_first() -> None:
    bench = Bench(num_blocks=6, slice_len=64)
    bench.add("a", 8, max_new_tokens=16)
    bench.add("b", 8, max_new_tokens=16)
    bench.step()
    assert bench.running == ["a", "b"]
    bench.add("c", 4)
    while len(bench.running) == 2:
        bench.step()
    assert bench.running == ["a"]
    assert bench.waiting == ["b", "c"]
    resumed = bench.scheduler[bench.waiting[0]]
    assert resumed.num_computed == 0
    assert resumed.num_generated > 0
    known = list(resumed.token_ids)
    while bench.scheduler.has_work:
        bench.step()
    assert resumed.token_ids[: len(known)] == known
    assert resumed.num_generated == 16


def test_a_sequence_alone_can_use_every_block() -> None:
    bench = Bench(num_blocks=2)
    sequence = bench.add("a", 4, max_new_tokens=5)
    bench.scheduler.check_fits(sequence.request)
    while bench.scheduler.has_work:
        bench.step()
    assert sequence.num_generated == 5
    assert bench.scheduler.metrics.num_preemptions == 0


def test_the_line_is_not_jumped_for_want_of_blocks() -> None:
    bench = Bench(num_blocks=4, slice_len=64)
    bench.add("a", 8, max_new_tokens=3)
    bench.step()
    bench.add("b", 12, max_new_tokens=1)
    bench.add("c", 1, max_new_tokens=1)
    bench.step()
    assert bench.waiting == ["b", "c"]
    while bench.scheduler.has_work:
        bench.step()


def test_a_follower_waits_for_the_blocks_it_shares_and_only_those() -> None:
    bench = Bench(chunk_len=64)
    bench.add("x1", 0, prompt_ids=[7] * 30)
    bench.add("x2", 0, prompt_ids=[7] * 12 + [8] * 5)
    bench.step()
    assert (bench.running, bench.waiting) == (["x1"], ["x2"])
    bench.step()
    bench.scheduler.plan()
    assert bench.running == ["x1", "x2"]
    assert bench.scheduler["x2"].num_cached == 12


@pytest.mark.parametrize("fields", [{"cache_prompt": False}, {"prompt_logprobs": True}], ids=str)
def test_who_does_not_read_the_cache_does_not_wait_for_it(fields: dict[str, bool]) -> None:
    bench = Bench(num_blocks=32)
    bench.add("x1", 0, prompt_ids=[7] * 30)
    bench.add("x2", 0, prompt_ids=[7] * 30, **fields)
    bench.scheduler.plan()
    assert bench.running == ["x1", "x2"]


def test_who_does_not_write_the_cache_is_not_waited_for() -> None:
    bench = Bench(num_blocks=32)
    bench.add("x1", 0, prompt_ids=[7] * 30, cache_prompt=False)
    bench.add("x2", 0, prompt_ids=[7] * 30)
    bench.scheduler.plan()
    assert bench.running == ["x1", "x2"]


def test_a_failure_ends_one_and_frees_its_blocks() -> None:
    bench = Bench(slice_len=64)
    bench.add("a", 9)
    bench.add("b", 9)
    plan = bench.scheduler.plan()
    events = bench.settle(plan, b=InternalError("no"))
    assert [type(event).__name__ for event in events if event.request_id == "b"] == ["Failed"]
    assert bench.running == ["a"]
    assert bench.scheduler.metrics.num_failed == 1


def test_drop_all_leaves_nothing() -> None:
    bench = Bench(max_running=1)
    bench.add("a", 9)
    bench.add("b", 9)
    bench.step()
    assert bench.scheduler.drop_all() == ("a", "b")
    assert not bench.scheduler.has_work
    assert bench.cache.num_leases == 0
    assert bench.cache.num_active_tokens == 0


def test_metrics_count() -> None:
    bench = Bench(slice_len=64)
    bench.add("a", 9, max_new_tokens=3)
    bench.add("b", 5, max_new_tokens=2)
    while bench.scheduler.has_work:
        bench.step()
    bench.add("a2", 0, prompt_ids=[ord("a")] * 9, max_new_tokens=1)
    bench.step()
    bench.scheduler.abort(bench.add("c", 3).id)
    metrics = bench.scheduler.metrics
    assert metrics.num_steps == 4
    assert metrics.num_prefill_tokens == 9 + 5 + 1
    assert metrics.num_cached_tokens == 8
    assert metrics.num_generated_tokens == 3 + 2 + 1
    assert metrics.num_finished == {"stop": 0, "length": 3, "abort": 1}


def test_abort_while_waiting_is_reported_as_such() -> None:
    bench = Bench()
    bench.add("a", 9)
    event = bench.scheduler.abort("a")
    assert isinstance(event, Finished)
    assert (event.reason, event.prompt_tokens, event.completion_tokens) == ("abort", 9, 0)
    assert bench.scheduler.abort("a") is None
