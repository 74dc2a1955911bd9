"""``flm bench``: how fast a model is here, at contexts of growing length."""

import csv
import re
import secrets
import sys
from collections.abc import Sequence
from dataclasses import astuple
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flm.cli.console import note, say, say_table
from flm.cli.options import model_argument, option
from flm.config import OPTIONS_BY_NAME, ServeConfig

if TYPE_CHECKING:
    from rich.table import Table

    from flm.bench.contexts import Speed, Spread

_DEFAULT = ServeConfig()
_COLUMNS = (
    "context",
    "prompt_tokens",
    "ttft_mean_s",
    "ttft_sd_s",
    "prefill_mean_tps",
    "prefill_sd_tps",
    "decode_mean_tps",
    "decode_sd_tps",
)


def bench(
    model: Annotated[str, model_argument()] = _DEFAULT.model,
    iterations: Annotated[
        int, typer.Option("--bench-iterations", min=1, help="Times that each context is measured.")
    ] = 2,
    ctx_len: Annotated[int | None, option("ctx_len", "-c")] = None,
    prefill_chunk_len: Annotated[int | None, option("prefill_chunk_len")] = None,
    kv_tokens: Annotated[int | None, option("kv_tokens")] = None,
    dtype: Annotated[str, option("dtype")] = _DEFAULT.dtype,
    kernels: Annotated[str, option("kernels")] = _DEFAULT.kernels,
    device: Annotated[str, option("device")] = _DEFAULT.device,
    threads: Annotated[int | None, option("threads")] = None,
) -> None:
    """Measure a model over HTTP, on a server started for it, at contexts of 1k to 32k tokens.

    Prints a table and writes bench_MODEL_DATE.csv into the current folder.
    """
    from flm.bench.contexts import contexts_within, measure
    from flm.bench.prompts import Prompts
    from flm.bench.servers import served
    from flm.cli.serve import pull, require_known
    from flm.models.store import open_store

    store = open_store()
    if require_known(store, model):
        pull(store, model)
    asked = {
        "ctx_len": ctx_len,
        "prefill_chunk_len": prefill_chunk_len,
        "kv_tokens": kv_tokens,
        "dtype": dtype,
        "kernels": kernels,
        "device": device,
        "threads": threads,
    }
    command = [sys.executable, "-m", "flm.cli.main", "serve", model, "--host", "127.0.0.1"]
    for name, value in asked.items():
        if value is not None:
            command += [OPTIONS_BY_NAME[name].flag, str(value)]
    note(f"Starting a server for {model}.")
    with served("flm serve", lambda port: [*command, "--port", str(port)], {}) as server:
        contexts = contexts_within(server.client.context_len())
        note(f"Measuring {len(contexts)} contexts, {iterations} times each.")
        found = []
        for speed in measure(server.client, contexts, iterations, Prompts(secrets.randbits(32))):
            note(f"{speed.context_len} tokens: first token after {speed.ttft.mean:.2f} s")
            found.append(speed)
    say_table(_table(model, found))
    path = csv_path(model)
    write_csv(path, found)
    say(f"Written to {path}")


def csv_path(model: str) -> Path:
    """Where the figures go: a name that every file system takes, in the current folder."""
    tag = re.sub(r"[^\w.-]+", "-", Path(model).name if "/" in model else model)
    return Path(f"bench_{tag}_{datetime.now().astimezone().date().isoformat()}.csv")


def write_csv(path: Path, speeds: Sequence["Speed"]) -> None:
    """A line for each context."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        for speed in speeds:
            parts = (speed.ttft, speed.prefill, speed.decode)
            figures = [f"{value:.6g}" for part in parts for value in astuple(part)]
            writer.writerow((speed.context_len, speed.prompt_tokens, *figures))


def _table(model: str, speeds: Sequence["Speed"]) -> "Table":
    from rich.table import Table

    table = Table(title=f"{model}: mean ± standard deviation")
    names = ("context", "prompt", "first token (s)", "prefill (tok/s)", "decode (tok/s)")
    for name in names:
        table.add_column(name, justify="right")
    for speed in speeds:
        parts = (speed.ttft, speed.prefill, speed.decode)
        cells = [_cell(part) for part in parts]
        table.add_row(str(speed.context_len), str(speed.prompt_tokens), *cells)
    return table


def _cell(part: "Spread") -> str:
    return f"{part.mean:.3g} ± {part.sd:.2g}"
