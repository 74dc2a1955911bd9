"""``scripts/bench quality``: how far the fast mode's predictions are from the exact mode's, for
each format of the KV cache."""

import hashlib
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchlib.corpus import paragraphs
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
from flm.models.files import open_model
from flm.text.tokenizer import Tokenizer

ROWS_AT_ONCE = 128


@dataclass(frozen=True, slots=True)
class Difference:
    """A value for each predicted token: the Kullback-Leibler divergence of the fast distribution
    from the exact one in nats, whether both think the same token best, and the loss of each, the
    negative log probability of the token that stands in the text."""

    divergence: list[float]
    agrees: list[bool]
    exact_loss: list[float]
    fast_loss: list[float]

    def __add__(self, other: "Difference") -> "Difference":
        return Difference(
            self.divergence + other.divergence,
            self.agrees + other.agrees,
            self.exact_loss + other.exact_loss,
            self.fast_loss + other.fast_loss,
        )


def compare(exact: Tensor, fast: Tensor, token_ids: Sequence[int]) -> Difference:
    """Of logits [T, vocab] that predict ``token_ids`` [T]."""
    found = Difference([], [], [], [])
    for at in range(0, len(token_ids), ROWS_AT_ONCE):
        rows = slice(at, at + ROWS_AT_ONCE)
        targets = torch.tensor(token_ids[rows])[:, None]
        p, q = (logits[rows].double().log_softmax(dim=1) for logits in (exact, fast))
        found += Difference(
            (p.exp() * (p - q)).sum(dim=1).tolist(),
            (p.argmax(dim=1) == q.argmax(dim=1)).tolist(),
            (-p.gather(1, targets)[:, 0]).tolist(),
            (-q.gather(1, targets)[:, 0]).tolist(),
        )
    return found


def windows(token_ids: Sequence[int], length: int) -> Iterator[Sequence[int]]:
    """Neighbouring windows of ``length`` tokens, the last one perhaps shorter."""
    for at in range(0, len(token_ids), length):
        window = token_ids[at : at + length]
        if len(window) > 1:
            yield window


def text_ids(path: Path, num_tokens: int) -> list[int]:
    """That many tokens of the corpus.

    Raises:
        BenchError: there are not so many.
    """
    tokenizer = Tokenizer.from_data(open_model(path).tokenizer)
    ids = list(tokenizer.encode("\n\n".join(paragraphs())))
    if len(ids) < num_tokens:
        raise BenchError(f"The text has {len(ids)} tokens only; ask for fewer with --tokens.")
    return ids[:num_tokens]


def measure(
    exact: Loaded, fast: Sequence[Loaded], token_ids: Sequence[int], length: int
) -> list[Difference]:
    """Each fast mode beside the exact one over the same windows, each window on its own."""
    found = [Difference([], [], [], []) for _ in fast]
    for window in windows(token_ids, length):
        wanted = exact.read(window[:-1], 0, len(window) - 1).cpu()
        for place, model in enumerate(fast):
            logits = model.read(window[:-1], 0, len(window) - 1).cpu()
            found[place] += compare(wanted, logits, window[1:])
    return found


def summary(found: Difference) -> dict[str, float]:
    """What the table shows."""
    divergence = sorted(found.divergence)
    size = len(divergence)
    error = statistics.stdev(divergence) / math.sqrt(size) if size > 1 else 0.0
    return {
        "tokens": size,
        "top-1 agreement, %": 100 * statistics.fmean(found.agrees),
        "mean divergence, nats": statistics.fmean(divergence),
        "standard error of it": error,
        "median divergence, nats": statistics.median(divergence),
        "99th percentile, nats": divergence[min(size - 1, math.ceil(0.99 * size))],
        "perplexity, exact": math.exp(statistics.fmean(found.exact_loss)),
        "perplexity, fast": math.exp(statistics.fmean(found.fast_loss)),
    }


@torch.inference_mode()
def main(arguments: Sequence[str]) -> None:
    """Compare and print."""
    parser = make_parser("quality", "How far the fast mode's predictions are from the exact's.")
    add_model(parser)
    parser.add_argument("--tokens", type=count(2), default=4000, help="of the text (4000)")
    parser.add_argument("--window", type=count(2), default=1000, help="context of each part (1000)")
    add_kv_dtypes(parser)
    asked = parser.parse_args(arguments)
    path = path_of(asked.model)
    ids = text_ids(path, asked.tokens)
    limit = open_model(path).config.max_context_len
    if asked.window > limit:
        raise BenchError(f"--window {asked.window} is above the model's context of {limit}.")
    threads = asked.threads
    formats = kv_dtypes_of(asked, path)
    configs = [ServeConfig(threads=threads, kv_dtype=name) for name in formats]
    fast = [load(path, config, asked.window) for config in configs]
    exact = load(path, ServeConfig(threads=threads, dtype="float32"), asked.window)
    found = measure(exact, fast, ids, asked.window)
    digest = hashlib.sha256(str(ids).encode()).hexdigest()[:12]
    table = Table(title=f"{path.name}: {fast[0].mode} against {exact.mode}")
    table.add_column("KV cache")
    for name in formats:
        table.add_column(name, justify="right")
    summaries = [summary(one) for one in found]
    for figure in summaries[0]:
        table.add_row(figure, *(f"{values[figure]:.5g}" for values in summaries))
    table.caption = f"windows of {asked.window} tokens; text {digest}"
    Console().print(table)
    values: dict[str, object] = {
        name: {**figures, "values": asdict(one)}
        for name, figures, one in zip(formats, summaries, found, strict=True)
    }
    write_json(asked.json, {"text": digest, **values})
