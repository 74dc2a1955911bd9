"""The equalities once more on tiny models of every family, in exact mode: to the last bit."""

from pathlib import Path
from typing import get_args

import pytest
import torch

from flm.engine.engine import Engine
from flm.engine.protocol import EngineConfig, EngineRequest
from flm.engine.runner import TorchRunner
from flm.kvcache.pool import KVPool
from flm.models.files import open_model
from flm.models.registry import CausalLM, load_model
from flm.types import SamplingParams
from tests.support.engines import Reply, prompt, request, run
from tests.support.tiny import Architecture, tiny_folder

SAMPLING = SamplingParams(temperature=1.5, top_k=60, top_p=0.95, min_p=0.0, presence_penalty=0.5)


@pytest.fixture(scope="module", params=get_args(Architecture))
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CausalLM:
    folder: Path = tiny_folder(tmp_path_factory.mktemp(request.param), request.param)
    return load_model(
        open_model(folder), dtype=torch.float32, device=torch.device("cpu"), exact=True
    )


def reply(model: CausalLM, wanted: EngineRequest, *others: EngineRequest, **limits: int) -> Reply:
    """What ``wanted`` is told among ``others``."""
    config = EngineConfig(**{"block_size": 8, "num_blocks": 64, "log_prefill": False} | limits)
    pool = KVPool(model.layout, config.num_blocks, config.block_size, torch.float32, "cpu")
    return run(Engine(TorchRunner(model, pool), config), *others, wanted)[wanted.id]


@pytest.mark.parametrize("sampling", [SamplingParams(temperature=0.0), SAMPLING], ids=["g", "s"])
def test_a_reply_does_not_depend_on_how_it_came_about(
    model: CausalLM, sampling: SamplingParams
) -> None:
    wanted = request("a", prompt(90), sampling=sampling, seed=7, max_new_tokens=40, num_logprobs=2)
    strangers = [
        request(f"s{i}", prompt(20 * i + 1, i), sampling=SAMPLING, max_new_tokens=50)
        for i in (1, 2, 3)
    ]
    alone = reply(model, wanted)
    assert len(alone.token_ids) == 40
    ways = [
        reply(model, wanted, *strangers),
        reply(model, wanted, slice_len=7, chunk_len=30),
        reply(model, wanted, *strangers, num_blocks=24),
        reply(model, wanted, request("sibling", prompt(90), max_new_tokens=3)),
    ]
    for way in ways:
        assert way.token_ids == alone.token_ids
        assert way.logprobs == alone.logprobs
    assert ways[-1].finished.cached_tokens == 88
