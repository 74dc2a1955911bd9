"""Guessing ahead on real networks, in both modes that keep a row's bits: to the last bit."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from flm.engine.engine import Engine
from flm.engine.protocol import EngineConfig, EngineRequest
from flm.engine.runner import FusedRunner, TorchRunner
from flm.kernels.build import load_kernels
from flm.kvcache.pool import KVPool
from flm.models.files import open_model
from flm.models.registry import load_fused, load_model
from flm.text.grammar import CompiledGrammar, GrammarCompiler, Sandbox, vocabulary_of
from flm.text.tokenizer import Tokenizer
from flm.types import SamplingParams
from tests.support.engines import GREEDY, Reply, request, run
from tests.support.tiny import IM_END, VOCAB_SIZE, Architecture, tiny_folder

SAMPLING = SamplingParams(temperature=0.8, top_k=30, top_p=0.95, min_p=0.0, presence_penalty=0.5)
COOL = SamplingParams(temperature=0.3, top_k=5, top_p=1.0, min_p=0.0)
SCHEMA = {
    "type": "array",
    "items": {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]},
    "maxItems": 9,
}


class Model:
    """A model on disk, ready to run in either mode."""

    def __init__(self, path: Path, *, native: bool) -> None:
        self.files = open_model(path)
        self.native = native
        if native:
            found = load_kernels()
            assert found.kernels is not None, found.problem
            self.network: Any = load_fused(self.files, found.kernels)
        else:
            device = torch.device("cpu")
            self.network = load_model(self.files, dtype=torch.float32, device=device, exact=True)

    def engine(self, *, speculates: bool, num_blocks: int = 64) -> Engine:
        config = EngineConfig(num_blocks=num_blocks, log_prefill=False, speculates=speculates)
        dtype = torch.bfloat16 if self.native else torch.float32
        pool = KVPool(self.network.layout, num_blocks, config.block_size, dtype, "cpu")
        runner = FusedRunner if self.native else TorchRunner
        return Engine(runner(self.network, pool), config, clock=lambda: 0.0)


@pytest.fixture(scope="module", params=get_args(Architecture))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module", params=[False, True], ids=["exact", "native"])
def model(request: pytest.FixtureRequest, folder: Path) -> Model:
    return Model(folder, native=request.param)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    box = Sandbox()
    yield box
    box.close()


def grammar_of(model: Model, sandbox: Sandbox) -> CompiledGrammar:
    compiler = GrammarCompiler(vocabulary_of(Tokenizer.from_data(model.files.tokenizer)), sandbox)
    return compiler.compile_json(SCHEMA, param="response_format")


def variants(grammar: CompiledGrammar, ids: tuple[int, ...]) -> list[EngineRequest]:
    """Made anew for every run: a grammar's place in its text belongs to one request."""
    ends = frozenset({IM_END})
    matcher = grammar.matcher(vocab_size=VOCAB_SIZE, eos_ids=ends)
    # Sharing no block, these fight over a small pool.
    alone: dict[str, Any] = {"max_new_tokens": 60, "cache_prompt": False}
    return [
        request("greedy", ids, num_logprobs=2, **alone),
        request("cool", ids, sampling=COOL, seed=3, num_logprobs=0, **alone),
        request("seeded", ids, sampling=SAMPLING, seed=7, num_logprobs=2, **alone),
        request("biased", ids, max_new_tokens=30, logit_bias=((9, 6.0),), num_logprobs=1),
        request("json", ids, max_new_tokens=60, eos_ids=ends, grammar=matcher, num_logprobs=0),
        request("long", ids * 3, max_new_tokens=20, min_new_tokens=5, eos_ids=ends),
    ]


def told(replies: dict[str, Reply]) -> dict[str, Any]:
    return {
        name: (
            reply.token_ids,
            reply.logprobs,
            replace(reply.finished, cached_tokens=0, diverged_at=None),
        )
        for name, reply in replies.items()
    }


def test_tiny_models_say_the_same_to_the_last_bit(model: Model, sandbox: Sandbox) -> None:
    grammar = grammar_of(model, sandbox)
    ids = tuple(7 * i % 11 + 300 for i in range(40))
    plain = model.engine(speculates=False)
    wanted = told({w.id: run(plain, w)[w.id] for w in variants(grammar, ids)})
    for num_blocks in (64, 6):
        engine = model.engine(speculates=True, num_blocks=num_blocks)
        assert told(run(engine, *variants(grammar, ids))) == wanted
        metrics = engine.scheduler.metrics
        assert 0 < metrics.num_accepted_tokens < metrics.num_drafted_tokens
        assert (metrics.num_preemptions > 0) == (num_blocks == 6)


def test_the_default_model_repeats_itself_in_fewer_steps(smollm2_gguf: Path) -> None:
    model = Model(smollm2_gguf, native=True)
    tokenizer = Tokenizer.from_data(model.files.tokenizer)
    text = "The quick brown fox jumps over the lazy dog near the river bank.\n"
    ids = tuple(tokenizer.encode(text * 3 + "The quick"))
    steps = []
    replies = []
    for speculates in (False, True):
        engine = model.engine(speculates=speculates)
        replies.append(
            run(
                engine,
                request("greedy", ids, sampling=GREEDY, max_new_tokens=40, num_logprobs=3),
                request("seeded", ids, sampling=SAMPLING, seed=1, max_new_tokens=40),
            )
        )
        steps.append(engine.scheduler.metrics.num_steps)
    assert told(replies[0]) == told(replies[1])
    assert engine.scheduler.metrics.num_accepted_tokens > 20
    assert steps[1] < steps[0]
    assert tokenizer.decode(replies[1]["greedy"].token_ids).startswith(" brown fox jumps over")
