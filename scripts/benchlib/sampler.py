"""``scripts/bench sampler``: the cost of sampling a row, at a vocabulary of 150,000."""

import statistics
import time
from collections.abc import Sequence

import torch
from rich.console import Console
from rich.table import Table

from benchlib.options import make_parser, write_json
from flm.kernels.build import load_kernels
from flm.sampling.batch import SamplingRow
from flm.sampling.pipeline import Sampler
from flm.sampling.window import Window
from flm.types import SamplingParams

VOCAB_SIZE = 150_000
NUM_REPEATS = 15
SETTINGS: dict[str, SamplingParams] = {
    "greedy": SamplingParams(temperature=0.0),
    "defaults (top_k 40)": SamplingParams(),
    "top_k 100, penalties": SamplingParams(top_k=100, presence_penalty=1.0, frequency_penalty=0.5),
    "penalties, all tokens": SamplingParams(
        top_k=100, presence_penalty=1.0, frequency_penalty=0.5, repeat_last_n=-1
    ),
    "top_k 1000": SamplingParams(top_k=1000, min_p=0.0, top_p=1.0),
    "no top_k, top_p 0.9": SamplingParams(top_k=VOCAB_SIZE, min_p=0.0),
    "no top_k, min_p 0.05": SamplingParams(top_k=VOCAB_SIZE, top_p=1.0, min_p=0.05),
    "temperature alone": SamplingParams(top_k=VOCAB_SIZE, top_p=1.0, min_p=0.0, temperature=1.0),
    "temperature 5 alone": SamplingParams(top_k=VOCAB_SIZE, top_p=1.0, min_p=0.0, temperature=5.0),
}


def rows_of(params: SamplingParams, num_rows: int, num_logprobs: int | None) -> list[SamplingRow]:
    """A batch of equal rows; greedy ones draw nothing."""
    uniform = None if params.is_greedy else 0.7
    # After a long reply: 372 different tokens among 2,000.
    window = Window(params.repeat_last_n, (i * i % 743 for i in range(2000)))
    return [SamplingRow(params, window, uniform, num_logprobs=num_logprobs)] * num_rows


def milliseconds(logits: torch.Tensor, rows: Sequence[SamplingRow]) -> list[float]:
    """Time of each repeat, divided by the rows."""
    sampler = Sampler(load_kernels().kernels)
    sampler.sample(logits, rows)
    times = []
    for _ in range(NUM_REPEATS):
        start = time.perf_counter()
        sampler.sample(logits, rows)
        times.append((time.perf_counter() - start) * 1e3 / len(rows))
    return times


@torch.inference_mode()
def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    parser = make_parser("sampler", "What sampling a row costs, in milliseconds, by setting.")
    parser.set_defaults(threads=1)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    table = Table(title=f"milliseconds a row, vocabulary {VOCAB_SIZE}, {asked.threads} thread(s)")
    for column in ("setting", "rows", "log probabilities", "median (smallest to largest)"):
        table.add_column(column)
    document = []
    for name, params in SETTINGS.items():
        for num_rows, num_logprobs in ((1, None), (8, None), (1, 5)):
            # Like a model's logits: a few high ones over a broad floor.
            logits = torch.randn(num_rows, VOCAB_SIZE) * 2
            logits[:, :50] += torch.linspace(14, 4, 50)
            times = milliseconds(logits, rows_of(params, num_rows, num_logprobs))
            shown = "-" if num_logprobs is None else str(num_logprobs)
            spread = f"{statistics.median(times):.3f} ({min(times):.3f} to {max(times):.3f})"
            table.add_row(name, str(num_rows), shown, spread)
            document.append(
                {"setting": name, "rows": num_rows, "logprobs": num_logprobs, "ms_per_row": times}
            )
    Console().print(table)
    write_json(asked.json, document)
