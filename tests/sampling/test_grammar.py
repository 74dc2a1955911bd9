"""Masks and bans."""

import math

import pytest
import torch

from flm.kernels.build import load_kernels
from flm.sampling.grammar import allowed_tokens, apply_masks
from tests.sampling.rows import bits, logits, row

OUT = -math.inf


def test_bits_count_from_the_lowest_of_the_first_byte() -> None:
    allowed = allowed_tokens(bytes([0b00000101, 0b10000000]), torch.zeros(16))
    assert allowed.nonzero()[:, 0].tolist() == [0, 2, 15]


@pytest.mark.parametrize("size", [1, 7, 8, 9, 16, 17, 40])
def test_a_mask_need_not_end_where_the_vocabulary_does(size: int) -> None:
    allowed = allowed_tokens(b"\xff\xff", torch.zeros(size))
    assert allowed.tolist() == [token < 16 for token in range(size)]


def test_an_empty_mask_allows_nothing() -> None:
    assert not allowed_tokens(b"", torch.zeros(3)).any()


@pytest.mark.parametrize("size", [1, 5, 16, 31, 200])
@pytest.mark.parametrize("num_bytes", [0, 1, 2, 3, 25, 40])
def test_the_kernels_rule_out_the_same(size: int, num_bytes: int) -> None:
    kernels = load_kernels().kernels
    assert kernels is not None
    mask = bytes((37 * place + 11) % 256 for place in range(num_bytes))
    values = torch.linspace(-3, 3, 2 * size).view(2, size)
    values[1, size // 2] = torch.nan
    rows = [row(mask=mask), row(mask=mask[::-1])]
    found, wanted = values.clone(), values.clone()
    apply_masks(found, rows, kernels)
    apply_masks(wanted, rows)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def test_what_is_not_allowed_is_ruled_out_and_the_rest_stays() -> None:
    values = logits(1.0, 2.0, OUT)
    apply_masks(values, [row(mask=bits([True, False, True]))])
    assert values.tolist() == [[1.0, OUT, OUT]]


def test_bans_are_ruled_out() -> None:
    values = logits(1.0, 2.0, 3.0)
    apply_masks(values, [row(banned_ids=(2, 0, 2))])
    assert values.tolist() == [[OUT, 2.0, OUT]]


def test_each_row_has_its_own() -> None:
    values = torch.ones(3, 2)
    apply_masks(values, [row(mask=bits([True, False])), row(), row(banned_ids=(0,))])
    assert values.tolist() == [[1.0, OUT], [1.0, 1.0], [OUT, 1.0]]
