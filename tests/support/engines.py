"""Engines over the fake model, and short ways to run requests on them."""

import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from flm.engine.engine import Engine
from flm.engine.protocol import (
    EngineConfig,
    EngineEvent,
    EngineRequest,
    Failed,
    Finished,
    Logprobs,
    PromptProgress,
    PromptRead,
    TokenOut,
)
from flm.engine.runner import TorchRunner
from flm.kvcache.pool import KVPool
from flm.sampling.draw import ModelRandom
from flm.types import SamplingParams
from tests.support.fake_model import VOCAB_SIZE, FakeModel

GREEDY = SamplingParams(temperature=0.0)
WARM = SamplingParams(temperature=1.0, top_k=VOCAB_SIZE, top_p=1.0, min_p=0.0)


def make_engine(model: Any = None, *, seed: int = 1, **limits: Any) -> Engine:
    """An engine with small blocks; ``limits`` are fields of EngineConfig."""
    config = EngineConfig(
        **{"block_size": 4, "num_blocks": 256, "chunk_len": 64, "slice_len": 16} | limits
    )
    model = FakeModel() if model is None else model
    pool = KVPool(model.layout, config.num_blocks, config.block_size, torch.float32, "cpu")
    return Engine(TorchRunner(model, pool), config, random=ModelRandom(seed), vocab_size=VOCAB_SIZE)


def prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    """Random tokens; the same seed gives the same beginning at any length."""
    generator = random.Random(seed)
    return tuple(generator.randrange(VOCAB_SIZE) for _ in range(length))


def request(name: str = "r", prompt_ids: Iterable[int] = (1, 2, 3), **fields: Any) -> EngineRequest:
    """Eight greedy tokens, unless told otherwise."""
    merged = {"sampling": GREEDY, "max_new_tokens": 8} | fields
    return EngineRequest(id=name, prompt_ids=tuple(prompt_ids), **merged)


@dataclass
class Reply:
    """Everything one sequence was told, folded."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Logprobs | None] = field(default_factory=list)
    progress: list[PromptProgress] = field(default_factory=list)
    read: PromptRead | None = None
    end: Finished | Failed | None = None

    @property
    def finished(self) -> Finished:
        assert isinstance(self.end, Finished), self.end
        return self.end

    def add(self, event: EngineEvent) -> None:
        assert self.end is None, f"{event} after {self.end}"
        match event:
            case PromptProgress():
                assert self.read is None, "progress after the prompt was read"
                self.progress.append(event)
            case PromptRead():
                assert self.read is None, "the prompt was read twice"
                self.read = event
            case TokenOut():
                assert self.read is not None, "a token before the prompt was read"
                self.token_ids.append(event.token_id)
                self.logprobs.append(event.logprobs)
            case Finished() | Failed():
                self.end = event


class Replies:
    """A sink that folds by request id; wait with ``wait_for``."""

    def __init__(self) -> None:
        self._by_id: dict[str, Reply] = {}
        self._changed = threading.Condition()

    def __call__(self, event: EngineEvent) -> None:
        with self._changed:
            self._by_id.setdefault(event.request_id, Reply()).add(event)
            self._changed.notify_all()

    def __getitem__(self, request_id: str) -> Reply:
        with self._changed:
            return self._by_id.setdefault(request_id, Reply())

    def wait_until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, timeout=60), "nothing happened for a minute"

    def wait_for(self, *request_ids: str) -> None:
        """Until all of them have ended."""
        self.wait_until(lambda: all(self._has_ended(name) for name in request_ids))

    def _has_ended(self, request_id: str) -> bool:
        return request_id in self._by_id and self._by_id[request_id].end is not None


def run(engine: Engine, *requests: EngineRequest) -> dict[str, Reply]:
    """Submit all, step until nothing is left, checking the books all the way."""
    for item in requests:
        engine.submit(item)
    replies = {item.id: Reply() for item in requests}
    return finish(engine, replies)


def drain(engine: Engine) -> list[EngineEvent]:
    """Step until nothing is left; every event on the way."""
    events = []
    while engine.has_work:
        events += engine.step()
        engine.check_integrity()
    return events


def finish(engine: Engine, replies: dict[str, Reply]) -> dict[str, Reply]:
    """Step until nothing is left."""
    for event in drain(engine):
        replies[event.request_id].add(event)
    assert engine.stats().active_kv_tokens == 0
    return replies


def text(prompt_ids: Iterable[int], **fields: Any) -> list[int]:
    """What one request gives alone, on an engine of its own without cache."""
    alone = request("alone", prompt_ids, **fields)
    return run(make_engine(), alone)["alone"].token_ids
