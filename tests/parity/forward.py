"""Running a model over a real paged cache, and transformers beside it."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from flm.kernels.build import load_kernels
from flm.kernels.weight_only import WeightFormat
from flm.kvcache.pool import KVPool
from flm.kvcache.view import ChunkView, DecodeView
from flm.models.files import open_model
from flm.models.registry import CausalLM, load_model

BLOCK = 8
CPU = torch.device("cpu")


def load(
    path: Path,
    *,
    dtype: torch.dtype = torch.float32,
    exact: bool = True,
    with_kernels: bool = True,
    weight_format: WeightFormat | None = None,
) -> CausalLM:
    return load_model(
        open_model(path),
        dtype=dtype,
        device=CPU,
        exact=exact,
        kernels=load_kernels().kernels if with_kernels else None,
        weight_format=weight_format,
    )


class Cached:
    """A model with a pool, and sequences on scattered pages in it."""

    def __init__(self, model: CausalLM, max_len: int = 256, num_sequences: int = 1) -> None:
        self.model = model
        self.num_blocks = -(-max_len // BLOCK)
        num_blocks = self.num_blocks * num_sequences
        dtype = model.embedding.dtype  # type: ignore[attr-defined]
        self.pool = KVPool(model.layout, num_blocks, BLOCK, dtype, CPU)
        order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(1)).tolist()
        self.tables = [
            tuple(order[i * self.num_blocks : (i + 1) * self.num_blocks])
            for i in range(num_sequences)
        ]
        self.lengths = [0] * num_sequences

    def chunk(self, ids: Sequence[int], sequence: int = 0) -> Tensor:
        """Feed ids to one sequence; logits of each, [T, vocab]."""
        start = self.lengths[sequence]
        view = ChunkView(self.pool, self.tables[sequence], start, len(ids))
        positions = torch.arange(start, start + len(ids))
        self.lengths[sequence] += len(ids)
        return self.model.logits(self.model.hidden(torch.tensor(ids), positions, view))

    def decode(self, ids: Sequence[int]) -> Tensor:
        """Feed one id to every sequence; logits of each, [B, vocab]."""
        positions = torch.tensor(self.lengths)
        self.lengths = [length + 1 for length in self.lengths]
        view = DecodeView(self.pool, torch.tensor(self.tables), self.lengths)
        return self.model.logits(self.model.hidden(torch.tensor(ids), positions, view))


@torch.inference_mode()
def logits_of(model: CausalLM, ids: Sequence[int], cuts: Sequence[int] = ()) -> Tensor:
    """Logits of every position, the ids fed in pieces that end at ``cuts``."""
    cached = Cached(model, max_len=len(ids))
    bounds = [0, *cuts, len(ids)]
    pieces = itertools.pairwise(bounds)
    return torch.cat([cached.chunk(ids[start:end]) for start, end in pieces])


@torch.inference_mode()
def greedy(model: CausalLM, ids: Sequence[int], num_tokens: int) -> list[int]:
    """The best next token, over and over; no end token ends it."""
    cached = Cached(model, max_len=len(ids) + num_tokens)
    tokens = [int(cached.chunk(ids)[-1].argmax())]
    while len(tokens) < num_tokens:
        tokens.append(int(cached.decode(tokens[-1:])[0].argmax()))
    return tokens
