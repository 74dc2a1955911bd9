"""An engine that says what a test wants: everything is real but the choice of tokens."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
from torch import Tensor

from flm.sampling.batch import Sampled, SamplingRow
from flm.sampling.pipeline import Sampler


@contextmanager
def saying(token_ids: Iterable[int]) -> Iterator[None]:
    """The one running sequence says these tokens; log probabilities stay the model's."""
    script = iter(tuple(token_ids))
    sample = Sampler.sample

    def scripted(sampler: Sampler, logits: Tensor, rows: Sequence[SamplingRow]) -> list[Sampled]:
        (found,) = sample(sampler, logits, rows)
        return [replace(found, token_id=next(script))]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sampler, "sample", scripted)
        yield
