"""Decode steps from recordings: the same numbers as without, and nothing lost where they fail."""

import itertools
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from flm.engine import graphs
from flm.engine.decode import DecodeRunner
from flm.engine.engine import Engine
from flm.engine.graphs import GraphedDecode, StaticStep, StepSize
from flm.engine.runner import TorchRunner
from flm.engine.step import DecodeRow
from flm.kernels import weight_only
from flm.kvcache.pool import KVPool
from flm.models.config import ModelConfig
from flm.models.layers import Parts
from flm.models.registry import NETWORKS, CausalLM
from flm.prefill.chunk import Chunk
from flm.prefill.runner import run_chunk
from tests.support.engines import make_engine, prompt, request, run
from tests.support.fake_model import VOCAB_SIZE, FakeModel
from tests.support.recording import record

BLOCK = 2
NUM_BLOCKS = 240
CPU = torch.device("cpu")


class RandomWeights:
    """Weights of any name and shape."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self.generator = torch.Generator().manual_seed(3)

    def tensor(self, name: str, *shape: int) -> Tensor:
        numbers = torch.randn(shape, generator=self.generator) / shape[-1] ** 0.5
        return (1 + numbers if "norm" in name else 2 * numbers).to(self.device, self.dtype)


def network(
    architecture: Any,
    weight_format: Any = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device = CPU,
) -> CausalLM:
    config = ModelConfig(
        architecture=architecture,
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=96,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        max_context_len=4096,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        rope_scaling=None,
        tie_embeddings=True,
        qkv_bias=architecture == "qwen2",
        qk_norm=architecture == "qwen3",
    )
    parts = Parts(RandomWeights(dtype, device), exact=False, weight_format=weight_format)
    return NETWORKS[architecture](config, parts, device)


def used_pool(model: Any) -> KVPool:
    """A pool whose blocks hold what is no number, from a former holder."""
    pool = KVPool(model.layout, NUM_BLOCKS, BLOCK, torch.float32, "cpu")
    for pages in (*pool.keys, *pool.values):
        pages[:NUM_BLOCKS] = torch.nan
    return pool


@dataclass
class Sequence:
    name: str
    table: tuple[int, ...]
    length: int = 0
    generator: random.Random = field(default_factory=lambda: random.Random(5))

    def row(self) -> DecodeRow:
        """Its next token."""
        token_id, self.length = self.generator.randrange(VOCAB_SIZE), self.length + 1
        return DecodeRow(self.name, token_id, self.length - 1, self.table)


class Twins:
    """The same sequences on scattered blocks, in a pool with recordings and in one without."""

    def __init__(self, model: Any, lengths: list[int], capture: Any = record, **limits: Any):
        self.pool, other = used_pool(model), used_pool(model)
        limits = {"max_rows": len(lengths), "first_recorded": 1} | limits
        self.graphed = GraphedDecode(model, self.pool, capture, **limits)
        self.eager = DecodeRunner(model, other)
        order = list(range(NUM_BLOCKS))
        random.Random(1).shuffle(order)
        share = NUM_BLOCKS // len(lengths)
        self.sequences = []
        for number, length in enumerate(lengths):
            table = tuple(order[number * share : (number + 1) * share])
            sequence = Sequence(str(number), table, length, random.Random(number))
            self.sequences.append(sequence)
            chunk = Chunk(sequence.name, prompt(length, number), 0, table, 0)
            for pool in (self.pool, other):
                run_chunk(model, pool, chunk)

    @torch.inference_mode()
    def step(self, *places: int) -> list[DecodeRow]:
        """Decode these sequences; every number is that of the other pool, and every page that is
        nobody's stays what it was."""
        rows = [self.sequences[place].row() for place in places]
        before = [pages.clone() for pages in (*self.pool.flat_keys, *self.pool.flat_values)]
        found, wanted = self.graphed.run(rows), self.eager.run(rows)
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
        allowed = self.slots(rows)
        for old, new in zip(before, (*self.pool.flat_keys, *self.pool.flat_values), strict=True):
            touched = (new != old).flatten(1).any(1) & ~(new.isnan() & old.isnan()).flatten(1).all(
                1
            )
            assert set(touched.nonzero()[:, 0].tolist()) <= allowed
        for pages in (*self.pool.keys, *self.pool.values):
            assert not pages[self.pool.null_block].any()
        return rows

    def slots(self, rows: list[DecodeRow]) -> set[int]:
        """Where these rows may write: their own place, the rest of a block just taken, and the
        scratch block."""
        scratch = self.pool.scratch_block * BLOCK
        allowed = set(range(scratch, scratch + BLOCK))
        for row in rows:
            first = row.block_table[row.position // BLOCK] * BLOCK
            whole = range(first, first + BLOCK)
            at = row.position % BLOCK
            allowed |= set(whole) if at == 0 else {whole[at]}
        return allowed

    @property
    def sizes(self) -> set[StepSize]:
        return set(self.graphed._recordings)


MODELS: dict[str, Callable[[], Any]] = {
    "fake": FakeModel,
    "llama": lambda: network("llama"),
    "qwen2": lambda: network("qwen2"),
    "qwen3": lambda: network("qwen3"),
    "int8": lambda: network("llama", "int8"),
    "int4": lambda: network("llama", "int4"),
}


# --- the same numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_random_batches_give_what_they_give_one_by_one(name: str) -> None:
    """Sizes between the recorded ones, blocks taken on the way, rows that come and go."""
    twins = Twins(MODELS[name](), [1, 2, 7, 31, 32, 40])
    choice = random.Random(0)
    for number in range(25):
        twins.step(*choice.sample(range(6), 1 + number % 6))
    assert {size.num_rows for size in twins.sizes} == {1, 2, 4, 6}
    assert {size.width for size in twins.sizes} == {16, 32}


def test_a_table_grows_over_every_border() -> None:
    twins = Twins(FakeModel(), [3])
    for _ in range(150):
        twins.step(0)
    assert twins.sizes == {StepSize(1, width) for width in (16, 32, 64, 128)}


def test_the_last_width_is_that_of_the_pool() -> None:
    twins = Twins(FakeModel(), [NUM_BLOCKS * BLOCK - 2])
    twins.step(0)
    assert twins.sizes == {StepSize(1, NUM_BLOCKS)}


def test_a_recording_serves_other_rows_than_it_was_tried_on() -> None:
    twins = Twins(network("llama"), [5, 9, 20, 2])
    for places in ((0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0), (2, 0, 3)):
        twins.step(*places)
    assert twins.sizes == {StepSize(4, 16)}


def test_an_engine_says_the_same(caplog: pytest.LogCaptureFixture) -> None:
    requests = [
        request(str(n), prompt(5 + 9 * n, n), max_new_tokens=n * 7 % 30 + 3) for n in range(9)
    ]
    plain = run(make_engine(max_running=4), *requests)
    engine = make_engine(max_running=4)
    model, config = FakeModel(), engine.config
    pool = KVPool(model.layout, config.num_blocks, config.block_size, torch.float32, "cpu")
    graphed = GraphedDecode(model, pool, record, max_rows=4, first_recorded=2)
    replies = run(Engine(TorchRunner(model, pool, graphed), config), *requests)
    assert len(graphed._recordings) > 3
    assert {name: reply.token_ids for name, reply in replies.items()} == {
        name: reply.token_ids for name, reply in plain.items()
    }
    assert not caplog.records


# --- which sizes ---------------------------------------------------------------------------------


def test_a_size_is_recorded_when_it_has_been_needed_a_few_times() -> None:
    twins = Twins(FakeModel(), [4, 4, 4], first_recorded=3)
    for _ in range(2):
        twins.step(0)
        twins.step(0, 1)
    assert not twins.sizes
    twins.step(1)
    assert twins.sizes == {StepSize(1, 16)}


def test_what_gathers_too_much_is_not_recorded() -> None:
    positions = 2 * 16 * BLOCK
    twins = Twins(FakeModel(), [4, 4, 4], max_gathered_bytes=positions * 2 * 2 * 8 * 4)
    twins.step(0, 1)
    twins.step(0, 1, 2)
    assert twins.sizes == {StepSize(2, 16)}


def test_there_are_so_many_recordings_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MAX_GRAPHS", 1)
    twins = Twins(FakeModel(), [4, 4])
    for places in ((0,), (0, 1), (0, 1), (1,)):
        twins.step(*places)
    assert twins.sizes == {StepSize(1, 16)}


# --- when it fails -------------------------------------------------------------------------------


def refused(step: Any) -> Any:
    raise RuntimeError("operation not permitted when stream is capturing\nat line 7")


def noisy(step: Any) -> Any:
    replay = record(step)
    return lambda: replay() + 1


def without_a_row(step: Any) -> Any:
    """Only one of the rows is wrong."""
    replay = record(step)
    return lambda: torch.cat((replay()[:1], torch.zeros(1, VOCAB_SIZE)))


def deaf(step: Any) -> Any:
    """A recording of numbers."""
    once = step()
    return lambda: once


def no_numbers(step: Any) -> Any:
    replay = record(step)
    return lambda: replay() * torch.nan


@pytest.mark.parametrize(
    ("capture", "reason"),
    [
        (refused, "operation not permitted when stream is capturing"),
        (noisy, "other logits"),
        (without_a_row, "other logits"),
        (deaf, "other logits"),
        (no_numbers, "other logits"),
    ],
)
def test_a_recording_that_fails_costs_nothing_but_speed(
    capture: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls = []
    twins = Twins(FakeModel(), [3, 6], lambda step: calls.append(1) or capture(step))
    with caplog.at_level(logging.INFO):
        for _ in range(4):
            twins.step(0, 1)
            twins.step(1)
    assert len(calls) == 1
    assert not twins.sizes
    assert len(caplog.records) == 1
    message = caplog.records[0].getMessage()
    assert message.startswith("Decoding goes on without CUDA graphs, which is slower: ")
    assert reason in message
    assert "line 7" not in message


def test_a_recording_that_fails_later(caplog: pytest.LogCaptureFixture) -> None:
    left = itertools.count(-2)

    def capture(step: Any) -> Any:
        replay = record(step)
        return lambda: refused(step) if next(left) > 0 else replay()

    twins = Twins(FakeModel(), [3, 6], capture)
    for _ in range(6):
        twins.step(0, 1)
    assert next(left) == 2
    assert not twins.sizes
    assert len(caplog.records) == 1


def test_a_model_without_numbers_is_recorded_all_the_same() -> None:
    logits = torch.tensor([[1.0, torch.nan, -torch.inf], [2.0, 3.0, torch.inf]])
    assert graphs._agree(logits, logits.clone())
    assert not graphs._agree(logits.nan_to_num(0), logits)
    assert not graphs._agree(-logits, logits)
    rounded = logits.clone()
    rounded[1, 0] += 0.01
    assert graphs._agree(rounded, logits)


# --- what can be recorded ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("architecture", "weight_format", "with_kernel"),
    [
        ("llama", None, False),
        ("qwen2", None, False),
        ("qwen3", None, False),
        ("llama", "int8", False),
        ("llama", "int4", False),
        ("llama", "int8", True),
    ],
)
def test_a_step_never_waits_for_its_device(
    architecture: str,
    weight_format: Any,
    with_kernel: bool,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A device that has no numbers: reading one back, or bringing one over, is an error."""

    def kernel(format_: Any, device: Any, dtype: Any) -> Any:
        return weight_only._KERNELS[format_] if with_kernel else None

    monkeypatch.setattr(weight_only, "_kernel", kernel)
    meta = torch.device("meta")
    model = network(architecture, weight_format, dtype, meta)
    pool = KVPool(model.layout, 40, 32, torch.bfloat16, meta)
    with torch.inference_mode():
        step = StaticStep(model, pool, StepSize(4, 16))
        step.fill([DecodeRow("a", 7, 31, (5,)), DecodeRow("b", 7, 32, (3, 4))])
        assert record(step)().shape == (4, VOCAB_SIZE)


@pytest.mark.parametrize(
    "step",
    [
        lambda x: x + float(x.sum().item()),
        lambda x: x[x > 0],
        lambda x: x if bool(x.any()) else -x,
        lambda x: x + torch.tensor([1.0, 2.0]),
        lambda x: x + torch.ones(2, device="cpu"),
        lambda x: x.to("cpu"),
    ],
)
def test_a_step_that_does_is_found(step: Any) -> None:
    x = torch.zeros(2, device="meta")
    with torch.inference_mode(), pytest.raises((RuntimeError, NotImplementedError)):
        record(lambda: step(x))
