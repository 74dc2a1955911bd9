"""Short ways to say a row of logits and what is wanted of it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flm.kernels.build import load_kernels
from flm.sampling.batch import Sampled, SamplingRow
from flm.sampling.pipeline import Sampler
from flm.sampling.window import Window
from flm.types import SamplingParams

NUM_DRAWS = 400
STEP = 1 / NUM_DRAWS + 1e-9
"""How far a share found by ``distribution`` may lie from the probability."""

PLAIN = SamplingParams(temperature=1.0, top_k=10**6, top_p=1.0, min_p=0.0)
"""Nothing but the softmax."""


def params(**fields: Any) -> SamplingParams:
    return SamplingParams(
        **{"temperature": 1.0, "top_k": 10**6, "top_p": 1.0, "min_p": 0.0, **fields}
    )


def row(of: SamplingParams = PLAIN, uniform: float | None = 0.5, **fields: Any) -> SamplingRow:
    window = fields.pop("window", ())
    return SamplingRow(of, Window(token_ids=window), None if of.is_greedy else uniform, **fields)


def logits(*values: float) -> Tensor:
    return torch.tensor([values], dtype=torch.float32)


def bits(allowed: list[bool]) -> bytes:
    """A mask as the grammar gives it."""
    number = sum(1 << place for place, ok in enumerate(allowed) if ok)
    return number.to_bytes((len(allowed) + 7) // 8, "little")


def sample(values: Tensor, rows: Sequence[SamplingRow]) -> list[Sampled]:
    """What plain torch chooses and the native kernels too."""
    kernels = load_kernels().kernels
    assert kernels is not None
    found = Sampler().sample(values, rows)
    assert Sampler(kernels).sample(values, rows) == found
    return found


def one(values: Tensor, of: SamplingRow) -> Sampled:
    return sample(values, [of])[0]


def token(values: Tensor, of: SamplingRow) -> int:
    return one(values, of).token_id


def distribution(values: Tensor, num_draws: int = NUM_DRAWS, **fields: Any) -> dict[int, float]:
    """Shares of the tokens over an even grid of draws; exact up to one grid step."""
    rows = [row(uniform=(i + 0.5) / num_draws, **fields) for i in range(num_draws)]
    counts: dict[int, float] = {}
    for result in sample(values.expand(num_draws, -1), rows):
        counts[result.token_id] = counts.get(result.token_id, 0.0) + 1 / num_draws
    return counts
