from typing import Any

import numpy as np
import pytest

from flm.kernels.packed import Memory, PackedMatrix, pack_q4, pack_q8, quantised

SHAPES = [(16, 32), (48, 96), (5, 32), (33, 160), (16, 20), (1, 1)]


def random_q4(num_out: int, num_in: int, seed: int = 0) -> tuple[PackedMatrix, Any]:
    random = np.random.default_rng(seed)
    quants = random.integers(0, 16, (num_out, num_in), dtype=np.uint8)
    blocks = -(-num_in // 32)
    scales = random.random((num_out, blocks), dtype=np.float32).astype(np.float16)
    minima = -random.random((num_out, blocks), dtype=np.float32).astype(np.float16)
    spread = [np.repeat(x.astype(np.float32), 32, axis=1)[:, :num_in] for x in (scales, minima)]
    return pack_q4(quants, scales, minima, Memory()), quants * spread[0] + spread[1]


def random_q8(num_out: int, num_in: int, seed: int = 0) -> tuple[PackedMatrix, Any]:
    random = np.random.default_rng(seed)
    quants = random.integers(-128, 128, (num_out, num_in), dtype=np.int8)
    scales = random.random((num_out, -(-num_in // 32)), dtype=np.float32).astype(np.float16)
    spread = np.repeat(scales.astype(np.float32), 32, axis=1)[:, :num_in]
    return pack_q8(quants, scales, Memory()), quants * spread


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("make", [random_q4, random_q8])
def test_packing_loses_nothing(make: Any, shape: tuple[int, int]) -> None:
    packed, weights = make(*shape)
    assert (packed.num_out, packed.num_in) == shape
    np.testing.assert_array_equal(packed.dequantised(), weights.astype(np.float32))


def test_panels_are_aligned_and_as_small_as_the_file() -> None:
    for packed in (random_q4(160, 320)[0], random_q8(160, 320)[0]):
        assert packed.panels.ctypes.data % 64 == 0
    assert random_q4(160, 320)[0].num_bytes == 160 * 320 * 20 // 32  # as Q4_1
    assert random_q8(160, 320)[0].num_bytes == 160 * 320 * 34 // 32  # as Q8_0


@pytest.mark.parametrize("shape", SHAPES)
def test_rounding_to_8_bits_stays_within_half_a_step(shape: tuple[int, int]) -> None:
    weights = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    found = quantised(weights, Memory()).dequantised()
    tops = np.array([np.abs(weights[:, i : i + 32]).max() for i in range(0, shape[1], 32)])
    steps = np.repeat(tops / 127, 32)[: shape[1]]
    # A little more than half a step: the scale itself is rounded to half precision.
    assert (np.abs(found - weights) <= 0.57 * steps + 1e-7).all()


def test_a_block_of_zeros_stays_zero() -> None:
    assert not quantised(np.zeros((3, 64), dtype=np.float32), Memory()).dequantised().any()


def test_matrices_lie_side_by_side() -> None:
    memory = Memory()
    first, second = memory.take(100), memory.take(64)
    assert second.ctypes.data - first.ctypes.data == 128
    large = memory.take(100 << 20)
    large[-1] = 7
    assert not memory.take(1000).any()
    assert first.ctypes.data % 64 == large.ctypes.data % 64 == 0
