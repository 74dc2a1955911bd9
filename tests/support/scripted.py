"""An engine that says what a test wants: everything is real but the choice of tokens."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
from torch import Tensor

from flm.engine import sampler
from flm.sampling.batch import Sampled, SamplingRow


@contextmanager
def saying(token_ids: Iterable[int]) -> Iterator[None]:
    """The one running sequence says these tokens; log probabilities stay the model's."""
    script = iter(tuple(token_ids))
    sample = sampler.sample

    def scripted(logits: Tensor, rows: Sequence[SamplingRow]) -> list[Sampled]:
        (found,) = sample(logits, rows)
        return [replace(found, token_id=next(script))]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "sample", scripted)
        yield
