"""The stage that rules tokens out: a grammar's mask, and tokens that may not come yet."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from flm.kernels.library import Kernels
from flm.sampling.batch import SamplingRow


def apply_masks(
    logits: Tensor, rows: Sequence[SamplingRow], kernels: Kernels | None = None
) -> None:
    """Set what a row's grammar does not allow, or its bans name, to -inf, in place."""
    for index, row in enumerate(rows):
        if row.mask is None:
            pass
        elif kernels is not None and logits.device.type == "cpu":
            kernels.rule_out(logits[index].numpy(), row.mask)
        else:
            logits[index].masked_fill_(~allowed_tokens(row.mask, logits), -torch.inf)
        if row.banned_ids:
            logits[index, list(row.banned_ids)] = -torch.inf


def allowed_tokens(mask: bytes, logits: Tensor) -> Tensor:
    """A bit set as bool [V] beside ``logits``; tokens beyond its end are not allowed."""
    vocab_size = logits.shape[-1]
    bits = np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little")[:vocab_size]
    allowed = np.zeros(vocab_size, dtype=np.bool_)
    allowed[: len(bits)] = bits
    return torch.from_numpy(allowed).to(logits.device)
