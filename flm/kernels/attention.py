"""Attention as functions of tensors: softmax(q k^T / sqrt(head_dim)) v with grouped heads.

Queries are [T, H, D], keys and values [L, Hkv, D]; H is a multiple of Hkv.
"""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from flm.kernels.linear import padded_rows

_QUERY_MULTIPLE: Final = 16
_KEY_MULTIPLE: Final = 512


def causal_mask(num_rows: int, start: int, device: torch.device) -> Tensor | None:
    """The mask for ``chunk_attention``: [T, start + T], True where row t, at position start + t,
    may look. None where the kernel needs no mask."""
    if start == 0 or num_rows == 1:
        return None
    return _causal(num_rows, start, start + num_rows, device)


def chunk_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """T rows at the end of one sequence, over its L positions.

    Returns [T, H, D]; each row sees itself and what is before it. ``mask`` is
    ``causal_mask(T, L - T, ...)``.
    """
    is_causal = mask is None and q.shape[0] > 1
    return _one_sequence(q, k, v, mask=mask, is_causal=is_causal)


def steady_mask(num_rows: int, start: int, device: torch.device) -> Tensor:
    """The mask for ``steady_chunk_attention``, rows and keys rounded up to whole blocks."""
    num_keys = start + num_rows
    return _causal(
        num_rows + -num_rows % _QUERY_MULTIPLE, start, num_keys + -num_keys % _KEY_MULTIPLE, device
    )


def steady_chunk_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """``chunk_attention``, each row's result the same bits however its sequence is cut.

    That holds in float32 on the CPU: any chunking of a prompt, and decoding token by token, give
    one result. ``mask`` is ``steady_mask(T, L - T, ...)``.
    """
    # The CPU kernel walks the keys in blocks of 512 and gives the rest a block of its own, so the
    # order of its sums follows the number of keys; whole blocks, the surplus masked, fix it.
    # Rows in whole tiles are what steady products need too: the kernel multiplies with BLAS.
    num_rows = q.shape[0]
    q = padded_rows(q, _QUERY_MULTIPLE)
    k, v = padded_rows(k, _KEY_MULTIPLE), padded_rows(v, _KEY_MULTIPLE)
    return _one_sequence(q, k, v, mask=mask, is_causal=False)[:num_rows]


def batch_mask(is_visible: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask for ``batch_attention``: what is added to scores in ``dtype``. [B, L], from True
    where a position is visible."""
    added = torch.zeros(is_visible.shape, dtype=dtype, device=is_visible.device)
    return added.masked_fill_(~is_visible, -torch.inf)


def batch_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """One row each of B sequences, padded to the longest.

    ``q`` is [B, H, D], ``k`` and ``v`` [B, L, Hkv, D], ``mask`` is ``batch_mask`` of what is
    visible. Returns [B, H, D].
    """
    num_rows, num_heads, dim = q.shape
    # Heads that share keys are neighbours, and each has one row: together they are the rows of
    # one head, which every fused kernel takes, and no key is copied for its group.
    grouped = q.reshape(num_rows, k.shape[2], num_heads // k.shape[2], dim)
    out = functional.scaled_dot_product_attention(
        grouped, k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask[:, None, None]
    )
    return out.reshape(num_rows, num_heads, dim)


def _causal(num_rows: int, start: int, num_keys: int, device: torch.device) -> Tensor:
    return torch.ones((num_rows, num_keys), dtype=torch.bool, device=device).tril(start)


def _one_sequence(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None, is_causal: bool
) -> Tensor:
    q, k, v = (tensor.transpose(0, 1)[None] for tensor in (q, k, v))  # [1, heads, rows, D]
    return _attention(q, k, v, mask=mask, is_causal=is_causal)[0].transpose(0, 1)


def _attention(q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None, is_causal: bool) -> Tensor:
    """[B, H, T, D] over [B, Hkv, L, D]."""
    group = q.shape[1] // k.shape[1]
    # On CUDA no fused kernel takes both grouped heads and a mask, and the one that does builds
    # the whole score matrix; repeated heads are the cheaper way there.
    if mask is not None and q.is_cuda and group > 1:
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    return functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=is_causal, enable_gqa=q.shape[1] != k.shape[1]
    )
