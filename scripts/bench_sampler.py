"""Cost of sampling one row, by setting: ``.venv/bin/python scripts/bench_sampler.py``.

Prints the median and the spread in milliseconds a row, at a vocabulary of 150,000.
"""

import statistics
import time
from collections.abc import Sequence

import torch

from flm.kernels.build import load_kernels
from flm.sampling.batch import SamplingRow
from flm.sampling.pipeline import Sampler
from flm.types import SamplingParams

VOCAB_SIZE = 150_000
NUM_REPEATS = 15
SETTINGS: dict[str, SamplingParams] = {
    "greedy": SamplingParams(temperature=0.0),
    "defaults (top_k 40)": SamplingParams(),
    "top_k 100, penalties": SamplingParams(top_k=100, presence_penalty=1.0, frequency_penalty=0.5),
    "top_k 1000": SamplingParams(top_k=1000, min_p=0.0, top_p=1.0),
    "no top_k, top_p 0.9": SamplingParams(top_k=VOCAB_SIZE, min_p=0.0),
    "no top_k, min_p 0.05": SamplingParams(top_k=VOCAB_SIZE, top_p=1.0, min_p=0.05),
    "temperature alone": SamplingParams(top_k=VOCAB_SIZE, top_p=1.0, min_p=0.0, temperature=1.0),
    "temperature 5 alone": SamplingParams(top_k=VOCAB_SIZE, top_p=1.0, min_p=0.0, temperature=5.0),
}


def rows_of(params: SamplingParams, num_rows: int, num_logprobs: int | None) -> list[SamplingRow]:
    """A batch of equal rows; greedy ones draw nothing."""
    uniform = None if params.is_greedy else 0.7
    window = list(range(64))
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


def main() -> None:
    """Print the table."""
    torch.manual_seed(0)
    print(f"{'setting':26} {'rows':>4} {'logprobs':>8} {'median':>8} {'min':>8} {'max':>8}  ms/row")
    for name, params in SETTINGS.items():
        for num_rows, num_logprobs in ((1, None), (8, None), (1, 5)):
            # Like a model's logits: a few high ones over a broad floor.
            logits = torch.randn(num_rows, VOCAB_SIZE) * 2
            logits[:, :50] += torch.linspace(14, 4, 50)
            times = milliseconds(logits, rows_of(params, num_rows, num_logprobs))
            shown = "-" if num_logprobs is None else str(num_logprobs)
            print(
                f"{name:26} {num_rows:4} {shown:>8} {statistics.median(times):8.3f} "
                f"{min(times):8.3f} {max(times):8.3f}"
            )


if __name__ == "__main__":
    with torch.inference_mode():
        main()
