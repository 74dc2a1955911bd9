"""``scripts/bench cache``: what each format of the KV cache takes, and how fast it is."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from rich.console import Console
from rich.table import Table

from benchlib.harness import Loaded, load
from benchlib.options import (
    add_kv_dtypes,
    add_model,
    count,
    kv_dtypes_of,
    make_parser,
    path_of,
    write_json,
)
from flm.bench.errors import BenchError
from flm.config import ServeConfig
from flm.models.config import ModelConfig
from flm.models.llama import cache_layout

SLICE: Final = 128
CHUNK: Final = 512
NUM_CHUNKS: Final = 3


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds by context: of decode steps, and of reading 512 tokens behind it."""

    steps: dict[int, list[float]]
    chunks: dict[int, list[float]]


def token_bytes(config: ModelConfig, model: Loaded) -> int:
    """Bytes that one position takes over all layers."""
    return cache_layout(config).bytes_per_token(model.numerics.kv_dtype.itemsize)


def fill(model: Loaded, start: int, end: int) -> None:
    """Put tokens into positions ``start`` to ``end`` - 1."""
    for at in range(start, end, SLICE):
        model.read(range(1, min(SLICE, end - at) + 1), at)


def step_s(model: Loaded, context: int) -> float:
    """Seconds of a decode step behind ``context`` tokens."""
    began = time.perf_counter()
    model.decode(1, context)
    return time.perf_counter() - began


def chunk_s(model: Loaded, context: int) -> float:
    """Seconds of reading more of a prompt behind ``context`` tokens."""
    began = time.perf_counter()
    model.read(range(1, CHUNK + 1), context)
    return time.perf_counter() - began


def measure(models: Sequence[Loaded], contexts: Sequence[int], num_steps: int) -> list[Times]:
    """All models take turns at every step, so that noise of the machine hits all of them."""
    found = [Times({}, {}) for _ in models]
    start = 0
    for context in sorted(contexts):
        for model in models:
            fill(model, start, context)
        start = context
        for times in found:
            times.steps[context], times.chunks[context] = [], []
        for _ in range(num_steps):
            for times, model in zip(found, models, strict=True):
                times.steps[context].append(step_s(model, context))
        for _ in range(NUM_CHUNKS):
            for times, model in zip(found, models, strict=True):
                times.chunks[context].append(chunk_s(model, context))
    return found


@torch.inference_mode()
def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = make_parser("cache", "What formats of the KV cache take, and how fast they are.")
    add_model(parser)
    add_kv_dtypes(parser)
    parser.add_argument(
        "--context", type=count(1), action="append", help="repeatable (1000, 4000 and 7000)"
    )
    parser.add_argument("--steps", type=count(2), default=40, help="decode steps at each (40)")
    asked = parser.parse_args(arguments)
    path, contexts = path_of(asked.model), asked.context or [1000, 4000, 7000]
    formats = kv_dtypes_of(asked, path)
    room = max(contexts) + CHUNK
    configs = [ServeConfig(threads=asked.threads, kv_dtype=name) for name in formats]
    models = [load(path, config, room) for config in configs]
    shape = models[0].files.config
    if room > shape.max_context_len:
        raise BenchError(
            f"--context {max(contexts)} and {CHUNK} tokens more are above the model's context of "
            f"{shape.max_context_len}."
        )
    found = measure(models, contexts, asked.steps)
    sizes = [token_bytes(shape, model) for model in models]
    table = Table(title=f"{path.name}, {asked.threads} threads: median (smallest)")
    table.add_column("KV cache")
    for name in formats:
        table.add_column(name, justify="right")
    table.add_row("bytes a token", *map(str, sizes))
    for context in sorted(contexts):
        steps = [shown(times.steps[context]) for times in found]
        table.add_row(f"a decode step at {context} tokens, ms", *steps)
        chunks = [shown(times.chunks[context]) for times in found]
        table.add_row(f"{CHUNK} more tokens of a prompt there, ms", *chunks)
    Console().print(table)
    rows = zip(formats, sizes, found, strict=True)
    write_json(asked.json, {name: _document(size, times) for name, size, times in rows})


def shown(times: Sequence[float]) -> str:
    """Milliseconds."""
    return f"{1e3 * statistics.median(times):.3g} ({1e3 * min(times):.3g})"


def _document(size: int, times: Times) -> dict[str, Any]:
    return {
        "bytes a token": size,
        "decode step, s": times.steps,
        f"reading {CHUNK} tokens, s": times.chunks,
    }
