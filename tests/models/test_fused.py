"""The fused network against the plain one, and the promises about its bits."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from flm.kernels.build import load_kernels
from flm.kernels.packed import Memory, quantised
from flm.kernels.reference import kept_in_bytes, rounded
from flm.kvcache.pool import KVPool
from flm.models.config import ModelConfig
from flm.models.files import open_model
from flm.models.fused import PAGE_SIZE, Run, can_fuse
from flm.models.llama import Llama, LlamaAttention
from flm.models.registry import load_fused, load_model
from tests.parity.forward import logits_of
from tests.support.tiny import LLAMA3_SCALING, tiny_folder, tiny_gguf

CPU = torch.device("cpu")
IDS = [(7 * i * i + 3 * i + 5) % 500 for i in range(1200)]
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"architecture": "llama"},
    "scaled": {"architecture": "llama", "rope_scaling": LLAMA3_SCALING},
    "biases": {"architecture": "qwen2"},
    "head norms": {"architecture": "qwen3"},
    "untied": {"architecture": "llama", "tied": False},
    "wide heads": {"architecture": "llama", "head_dim": 64},
    "wider heads": {"architecture": "qwen3", "head_dim": 96},
}


class Fused:
    """A fused model and scattered pages for several sequences."""

    def __init__(
        self,
        path: Path,
        kv_dtype: torch.dtype = torch.bfloat16,
        num_sequences: int = 1,
        threads: int | None = None,
    ) -> None:
        found = load_kernels()
        assert found.kernels is not None, found.problem
        before = torch.get_num_threads()
        torch.set_num_threads(threads if threads is not None else before)
        self.model = load_fused(open_model(path), found.kernels)
        torch.set_num_threads(before)
        pages = -(-len(IDS) // PAGE_SIZE)
        count = pages * num_sequences
        pool = KVPool(self.model.layout, count, PAGE_SIZE, kv_dtype, CPU)
        # What a former holder left in a page must not matter. Bytes of -1 are scales that are not
        # numbers.
        for pages_of_layer in (*pool.keys, *pool.values):
            pages_of_layer.fill_(-1 if kv_dtype == torch.int8 else float("nan"))
        self.model.bind(pool.keys, pool.values)
        order = torch.randperm(count, generator=torch.Generator().manual_seed(1)).tolist()
        self.tables = [order[i * pages : (i + 1) * pages] for i in range(num_sequences)]

    def run(self, ids: Sequence[int], start: int, sequence: int = 0) -> Run:
        return Run(ids, start, self.tables[sequence])

    def logits(self, ids: Sequence[int], cuts: Sequence[int] = ()) -> Tensor:
        pieces = itertools.pairwise([0, *cuts, len(ids)])
        parts = [self.model.forward([self.run(ids[a:b], a)], range(b - a)) for a, b in pieces]
        return torch.cat(parts)


@pytest.fixture(scope="module", params=SHAPES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("fused") / "model", **SHAPES[request.param])


@pytest.fixture(params=[torch.bfloat16, torch.int8], ids=["bfloat16", "int8"])
def kv_dtype(request: pytest.FixtureRequest) -> torch.dtype:
    found: torch.dtype = request.param
    return found


class Keeping:
    """An attention whose keys and values go through a cache of 8 bits."""

    def __init__(self, inner: LlamaAttention) -> None:
        self.inner = inner

    def __call__(self, x: Tensor, rotate: Any, attend: Any) -> Tensor:
        def kept(values: Tensor) -> Tensor:
            return torch.from_numpy(kept_in_bytes(values.contiguous().numpy()))

        return self.inner(x, rotate, lambda q, k, v, layer: attend(q, kept(k), kept(v), layer))


def rounding_twin(path: Path, *, keeps_bytes: bool = False) -> Llama:
    """The plain network with the fused one's weights, its products rounding as the kernels do."""
    files = open_model(path)
    model = load_model(files, dtype=torch.float32, device=CPU, exact=True)
    assert isinstance(model, Llama)

    def products() -> Any:
        for layer in model.layers:
            attention = layer.attention
            assert isinstance(attention, LlamaAttention)
            yield from (attention.query, attention.key, attention.value, attention.output)
            yield from (layer.mlp.gate, layer.mlp.up, layer.mlp.down)
        yield model.head

    def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        y = torch.from_numpy(rounded(x.numpy()))
        if any(weight is linear.weight for linear in fine):  # the rest of the rounding is added
            y = y + torch.from_numpy(rounded((x - y).numpy()))
        return torch.nn.functional.linear(y, weight, bias)

    fine: list[Any] = [model.head]
    for layer in model.layers:
        attention = layer.attention
        assert isinstance(attention, LlamaAttention)
        fine += [attention.query, attention.key, attention.value]
    for linear in products():
        weight = torch.from_numpy(quantised(linear.weight.numpy(), Memory()).dequantised())
        object.__setattr__(linear, "weight", weight)
        object.__setattr__(linear, "product", product)
    if files.config.tie_embeddings:
        model.embedding = model.head.weight
    else:
        model.embedding = torch.from_numpy(
            quantised(model.embedding.numpy(), Memory()).dequantised()
        )
    for layer in model.layers:
        if keeps_bytes:
            assert isinstance(layer.attention, LlamaAttention)
            object.__setattr__(layer, "attention", Keeping(layer.attention))
    return model


def error_of(found: Tensor, wanted: Tensor) -> float:
    """Of logits, beside their spread."""
    return float((found - wanted).abs().mean() / wanted.std())


def test_it_computes_what_the_plain_network_does(path: Path, kv_dtype: torch.dtype) -> None:
    ids = IDS[:600]
    keeps_bytes = kv_dtype == torch.int8
    wanted = logits_of(rounding_twin(path, keeps_bytes=keeps_bytes), ids)
    found = Fused(path, kv_dtype).logits(ids)
    # The cache in bfloat16, and roundings to 8 bits that fall the other way because of it.
    assert error_of(found, wanted) < 0.02
    assert torch.corrcoef(torch.stack((found.flatten(), wanted.flatten())))[0, 1] > 0.9995
    if keeps_bytes:
        without = logits_of(rounding_twin(path), ids)
        assert error_of(found, wanted) < error_of(found, without)


def test_any_cut_of_a_prompt_gives_the_same_bits(path: Path, kv_dtype: torch.dtype) -> None:
    fused = Fused(path, kv_dtype)
    whole = fused.logits(IDS)
    assert whole.isfinite().all()
    cuts = [1, 2, 31, 32, 33, 67, 102, 511, 512, 513, 514, 901, *range(1020, 1030)]
    assert torch.equal(Fused(path, kv_dtype).logits(IDS, cuts), whole)
    assert torch.equal(Fused(path, kv_dtype, threads=1).logits(IDS, [703]), whole)
    assert torch.equal(Fused(path, kv_dtype, threads=3).logits(IDS, [301]), whole)


def test_a_sequence_has_the_same_bits_in_any_company(path: Path, kv_dtype: torch.dtype) -> None:
    lengths = [3, 40, 700, 1100, 31]
    fused = Fused(path, kv_dtype, num_sequences=len(lengths))
    alone = []
    for place, length in enumerate(lengths):
        fused.model.forward([fused.run(IDS[place : place + length], 0, place)], [])
        run = fused.run([IDS[place]], length, place)
        alone.append(fused.model.forward([run], [0])[0])
    decodes = [fused.run([IDS[i]], length, i) for i, length in enumerate(lengths)]
    together = fused.model.forward(decodes, range(len(lengths)))
    assert torch.equal(together, torch.stack(alone))
    # Beside a slice of a prompt, and in another order.
    chunk = fused.run(IDS[1:90], 0, 0)
    beside = fused.model.forward([decodes[3], chunk, decodes[2]], [0, 90])
    assert torch.equal(beside, torch.stack([alone[3], alone[2]]))


def test_rows_that_share_pages_have_the_same_bits_as_alone(
    path: Path, kv_dtype: torch.dtype
) -> None:
    # Parts of 512 positions: two in common, or one and a page of the next, or none.
    num_shared, lengths = [36, 36, 17, 36, 0, 17], [1190, 1153, 1170, 1199, 1100, 545]
    fused = Fused(path, kv_dtype, num_sequences=len(lengths))
    alone = []
    for place, (shared, length) in enumerate(zip(num_shared, lengths, strict=True)):
        own = fused.tables[place]
        fused.tables[place] = fused.tables[0][:shared] + own[shared:]
        at = shared * PAGE_SIZE if place else 0
        ids = [*IDS[:at], *IDS[place : length - at + place]]
        fused.model.forward([fused.run(ids[at:], at, place)], [])
        run = fused.run([IDS[place]], length, place)
        alone.append(fused.model.forward([run], [0])[0])
    decodes = [fused.run([IDS[i]], length, i) for i, length in enumerate(lengths)]
    together = fused.model.forward(decodes, range(len(lengths)))
    assert torch.equal(together, torch.stack(alone))
    order = [4, 1, 5, 0, 2, 3]
    beside = fused.model.forward([decodes[i] for i in order], range(len(lengths)))
    assert torch.equal(beside, torch.stack([alone[i] for i in order]))


def test_gguf_files_of_every_architecture(tmp_path: Path) -> None:
    for architecture in ("llama", "qwen2", "qwen3"):
        gguf = tiny_gguf(tmp_path / f"{architecture}.gguf", architecture)
        folder = tiny_folder(tmp_path / architecture, architecture)
        wanted, found = Fused(folder).logits(IDS[:50]), Fused(gguf).logits(IDS[:50])
        torch.testing.assert_close(found, wanted, atol=0.02, rtol=0.02)


def test_no_logits_are_computed_unasked(path: Path) -> None:
    fused = Fused(path)
    assert fused.model.forward([fused.run(IDS[:10], 0)], []).shape == (0, 512)


@pytest.mark.parametrize(
    ("change", "fits"),
    [({}, True), ({"head_dim": 24}, False), ({"hidden_size": 72}, False)],
)
def test_shapes_that_the_kernels_know(tmp_path: Path, change: dict[str, int], fits: bool) -> None:
    config = open_model(tiny_folder(tmp_path)).config
    values = {name: getattr(config, name) for name in ModelConfig.__dataclass_fields__}
    assert can_fuse(ModelConfig(**{**values, **change})) is fits
