import gguf
import numpy as np
import pytest
from gguf import quants
from gguf.constants import GGMLQuantizationType as Kind

from flm.kernels.packed import Memory
from flm.models.weights.blocks import pack_blocks

RANDOM = np.random.default_rng(0)
LOSSLESS = [Kind.Q4_0, Kind.Q4_1, Kind.Q8_0]
WRITTEN = [*LOSSLESS, Kind.Q5_0, Kind.Q5_1, Kind.BF16, Kind.F16, Kind.F32]


def weights(num_out: int = 40, num_in: int = 512) -> np.ndarray:
    return RANDOM.standard_normal((num_out, num_in)).astype(np.float32) / 8


def random_blocks(kind: Kind, num_out: int = 24, num_in: int = 512) -> np.ndarray:
    """Random bytes with sane scales, for types that the library can read but not write."""
    block_size, type_size = gguf.GGML_QUANT_SIZES[kind]
    raw = RANDOM.integers(0, 256, (num_out, num_in // block_size, type_size), dtype=np.uint8)
    scale = np.array([0.01], np.float16).view(np.uint8)
    at = {Kind.Q6_K: (208,), Kind.Q4_K: (0, 2), Kind.Q5_K: (0, 2), Kind.Q3_K: (108,)}[kind]
    for place in at:
        raw[..., place : place + 2] = scale
    return raw.reshape(num_out, -1)


@pytest.mark.parametrize("kind", WRITTEN)
def test_written_types(kind: Kind) -> None:
    raw = quants.quantize(weights(), kind).view(np.uint8).reshape(40, -1)
    wanted = quants.dequantize(raw, kind).astype(np.float32)
    found = pack_blocks(raw, kind, Memory()).dequantised()
    if kind in LOSSLESS:
        np.testing.assert_array_equal(found, wanted)
    else:
        steps = np.abs(wanted).reshape(40, -1, 32).max(axis=-1).repeat(32, axis=1) / 127
        assert (np.abs(found - wanted) <= 0.57 * steps).all()


@pytest.mark.parametrize("kind", [Kind.Q6_K, Kind.Q5_K, Kind.Q3_K])
def test_other_types_are_rounded_to_8_bits(kind: Kind) -> None:
    raw = random_blocks(kind)
    wanted = quants.dequantize(raw, kind).astype(np.float32)
    packed = pack_blocks(raw, kind, Memory())
    assert packed.format == "q8"
    steps = np.abs(wanted).reshape(24, -1, 32).max(axis=-1).repeat(32, axis=1) / 127
    assert (np.abs(packed.dequantised() - wanted) <= 0.57 * steps + 1e-9).all()


def test_q4_k_keeps_its_quants() -> None:
    raw = random_blocks(Kind.Q4_K)
    packed = pack_blocks(raw, Kind.Q4_K, Memory())
    wanted = quants.dequantize(raw, Kind.Q4_K)
    assert packed.format == "q4"
    # Two roundings of scales to half precision, each to 1/2048 of at most 63 * 0.01 * 15.
    np.testing.assert_allclose(packed.dequantised(), wanted, atol=2 * 0.63 * 15 / 2048)
