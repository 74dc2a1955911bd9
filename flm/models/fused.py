"""A Llama-like network whose forward is one call into the native kernels.

Weights stay in 4 and 8 bits, activations are rounded to 8 bits in blocks of 32 before each
product, keys and values are kept in bfloat16, or in 8 bits with a scale for each vector. A row's
result does not depend on the other rows of a forward, on the cut of its prompt, or on the number
of threads.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flm.kernels.library import Batch, Kernels, Layer, Matrix, Model, matrix
from flm.kernels.packed import Memory, PackedMatrix
from flm.kvcache.layout import CacheLayout
from flm.models.config import ModelConfig
from flm.models.layers import Rope
from flm.models.llama import cache_layout

Int32 = npt.NDArray[np.int32]

PAGE_SIZE: Final = 32
"""Positions in a page of the cache."""
_KV_FORMATS: Final = {torch.bfloat16: 0, torch.int8: 1}
"""``KvFormat`` of native/pages.h."""
_MAX_HEAD_DIM: Final = 512
_MULTIPLE: Final = 32


class PackedWeights(Protocol):
    """A model's tensors by internal name, matrices in the kernels' layout."""

    def tensor(self, name: str, *shape: int) -> Tensor:
        """The tensor in float32. Raises ModelFileError where it cannot be had."""

    def packed(self, name: str, num_out: int, num_in: int) -> PackedMatrix:
        """The matrix [num_out, num_in]. Raises ModelFileError where it cannot be had."""


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring rows of one sequence: ``token_ids`` at ``start`` and following positions."""

    token_ids: Sequence[int]
    start: int
    block_table: Sequence[int]


def can_fuse(config: ModelConfig) -> bool:
    """Whether the kernels know networks of this shape."""
    sizes = (config.hidden_size, config.intermediate_size, config.num_heads * config.head_dim)
    return (
        all(size % _MULTIPLE == 0 for size in sizes)
        and config.head_dim % 16 == 0
        and config.head_dim <= _MAX_HEAD_DIM
        and config.activation == "silu"
    )


class FusedModel:
    """The network. ``bind`` gives it the memory of its cache."""

    def __init__(self, config: ModelConfig, weights: PackedWeights, kernels: Kernels) -> None:
        self.config = config
        self.layout: CacheLayout = cache_layout(config)
        self._kernels = kernels
        self._rope = Rope(config, torch.device("cpu"))
        self._memory = Memory()
        self._kept: list[object] = []  # what the structures point into
        embedding = weights.packed("embedding.weight", config.vocab_size, config.hidden_size)
        head = embedding if config.tie_embeddings else self._head(weights)
        self._layers = (Layer * config.num_layers)(
            *(self._layer(weights, index) for index in range(config.num_layers))
        )
        self._model = Model(
            num_layers=config.num_layers,
            hidden=config.hidden_size,
            inner=config.intermediate_size,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            vocab=config.vocab_size,
            num_threads=torch.get_num_threads(),
            eps=config.rms_norm_eps,
            kv_format=_KV_FORMATS[torch.bfloat16],
            embedding=self._matrix(embedding),
            head=self._matrix(head),
            norm=self._vector(weights, "norm.weight", config.hidden_size),
            layers=ctypes.cast(self._layers, ctypes.POINTER(Layer)),
        )

    def bind(self, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        """Use these pages, one tensor a layer: [pages, 32, num_kv_heads, head_dim] in bfloat16, or
        in int8 with room for scales, as a ``KVPool`` makes them. What is in a page is the kernels'
        own affair (native/pages.h)."""
        dtype, heads = keys[0].dtype, self.config.num_kv_heads
        state = self.layout.layers[0]
        for layer, key, value in zip(self._layers, keys, values, strict=True):
            assert key.dtype == value.dtype == dtype
            assert key.shape[1:] == (PAGE_SIZE, heads, state.vector_len(dtype.itemsize))
            layer.keys, layer.values = key.data_ptr(), value.data_ptr()
        self._model.kv_format = _KV_FORMATS[dtype]
        self._kept.append((keys, values))

    def forward(self, runs: Sequence[Run], logit_rows: Sequence[int]) -> Tensor:
        """Run all rows into the cache; the logits of some, [len(logit_rows), vocab], float32.

        Rows are counted over all runs in their order.
        """
        token_ids = np.concatenate([np.asarray(run.token_ids, dtype=np.int32) for run in runs])
        counts = [len(run.token_ids) for run in runs]
        firsts = np.cumsum([0, *counts[:-1]])
        starts = [run.start for run in runs]
        places = np.stack((firsts, counts, starts), axis=1).astype(np.int32)
        positions = np.concatenate(
            [np.arange(s, s + c) for s, c in zip(starts, counts, strict=True)]
        )
        rotation = self._rope.at(torch.from_numpy(positions))
        cosines, sines = rotation.cos.contiguous(), rotation.sin.contiguous()
        tables = _tables(runs)
        wanted = np.asarray(logit_rows, dtype=np.int32)
        logits = torch.empty((len(wanted), self.config.vocab_size), dtype=torch.float32)
        batch = Batch(
            num_rows=len(token_ids),
            num_runs=len(runs),
            table_width=tables.shape[1],
            num_logits=len(wanted),
            token_ids=token_ids.ctypes.data,
            runs=places.ctypes.data,
            tables=tables.ctypes.data,
            cosines=cosines.data_ptr(),
            sines=sines.data_ptr(),
            logit_rows=wanted.ctypes.data,
            logits=logits.data_ptr(),
        )
        self._kernels.forward(self._model, batch)
        return logits

    def _head(self, weights: PackedWeights) -> PackedMatrix:
        return weights.packed("head.weight", self.config.vocab_size, self.config.hidden_size)

    def _layer(self, weights: PackedWeights, index: int) -> Layer:
        config, name = self.config, f"layers.{index}"
        hidden, inner, dim = config.hidden_size, config.intermediate_size, config.head_dim
        query_size, key_size = config.num_heads * dim, config.num_kv_heads * dim

        def linear(part: str, num_in: int, num_out: int, *, bias: bool) -> Matrix:
            packed = weights.packed(f"{name}.{part}.weight", num_out, num_in)
            values = weights.tensor(f"{name}.{part}.bias", num_out) if bias else None
            return self._matrix(packed, values)

        def norm(part: str, size: int) -> int:
            return self._vector(weights, f"{name}.{part}.weight", size)

        return Layer(
            query=linear("query", hidden, query_size, bias=config.qkv_bias),
            key=linear("key", hidden, key_size, bias=config.qkv_bias),
            value=linear("value", hidden, key_size, bias=config.qkv_bias),
            output=linear("output", query_size, hidden, bias=config.output_bias),
            gate=linear("gate", hidden, inner, bias=config.mlp_bias),
            up=linear("up", hidden, inner, bias=config.mlp_bias),
            down=linear("down", inner, hidden, bias=config.mlp_bias),
            attention_norm=norm("attention_norm", hidden),
            mlp_norm=norm("mlp_norm", hidden),
            query_norm=norm("query_norm", dim) if config.qk_norm else None,
            key_norm=norm("key_norm", dim) if config.qk_norm else None,
        )

    def _matrix(self, packed: PackedMatrix, bias: Tensor | None = None) -> Matrix:
        values = None if bias is None else self._padded(bias)
        self._kept.append((packed, values))
        return matrix(packed, values)

    def _vector(self, weights: PackedWeights, name: str, size: int) -> int:
        values = self._padded(weights.tensor(name, size))
        self._kept.append(values)
        return int(values.ctypes.data)

    def _padded(self, values: Tensor) -> npt.NDArray[np.float32]:
        """With zeros up to a multiple of 16."""
        size = values.numel()
        out = self._memory.take(-(-size // 16) * 64).view(np.float32)
        out[:size] = values.float().numpy()
        return out


def _tables(runs: Sequence[Run]) -> Int32:
    """The pages of each run, [len(runs), width]."""
    used = [-(-(run.start + len(run.token_ids)) // PAGE_SIZE) for run in runs]
    tables = np.zeros((len(runs), max(used)), dtype=np.int32)
    for row, (run, count) in enumerate(zip(runs, used, strict=True)):
        tables[row, :count] = run.block_table[:count]
    return tables
