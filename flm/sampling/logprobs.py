"""Log probabilities of raw logits over the whole vocabulary, before anything is done to them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from flm.sampling.batch import Sampled
from flm.sampling.candidates import best

LOWEST = -9999.0
"""Stands for a probability of zero, which JSON cannot say as a logarithm."""


def token_logprobs(logits: Tensor, token_ids: Sequence[int], num_top: int) -> list[Sampled]:
    """Of every row of ``logits`` [R, V]: the log probability of its token, and the ``num_top``
    best alternatives."""
    if not token_ids:
        return []
    total = torch.logsumexp(logits.double(), -1)  # [R]
    rows = torch.arange(len(token_ids), device=logits.device)
    own = logits[rows, torch.tensor(token_ids, device=logits.device)].double() - total
    totals = total.tolist()
    tops = best(logits, num_top) if num_top > 0 else [None] * len(token_ids)
    return [
        Sampled(
            token_id,
            max(logprob, LOWEST),
            ()
            if top is None
            else tuple(
                (int(token), max(float(value) - row_total, LOWEST))
                for token, value in zip(top.token_ids, top.logits, strict=True)
            ),
        )
        for token_id, logprob, row_total, top in zip(
            token_ids, own.tolist(), totals, tops, strict=True
        )
    ]
