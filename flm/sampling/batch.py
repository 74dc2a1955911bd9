"""What the sampler takes and gives, a row of logits each."""

from dataclasses import dataclass

from flm.sampling.window import Window
from flm.types import SamplingParams

NO_TOKEN = -1
"""The ``token_id`` of a row that allows no token, or whose logits are not numbers."""


@dataclass(frozen=True, slots=True)
class SamplingRow:
    """How to choose from one row.

    ``window`` holds the tokens the penalties look at, already cut to ``repeat_last_n``; it may be
    that of a sequence, which goes on. ``uniform`` is one draw from [0, 1), None for a greedy row.
    ``mask`` is a little-endian bit set of the tokens a grammar allows (None: all); ``banned_ids``
    cannot be sampled now. ``num_logprobs`` asks for log probabilities and that many alternatives.
    """

    params: SamplingParams
    window: Window
    uniform: float | None
    mask: bytes | None = None
    banned_ids: tuple[int, ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()
    num_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Sampled:
    """The choice of one row. ``logprob`` and ``top`` (best first, ties by lowest id) are there
    when they were asked for, and are those of the raw logits."""

    token_id: int
    logprob: float | None
    top: tuple[tuple[int, float], ...]
