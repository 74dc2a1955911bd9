"""The native kernels against their twins, and the promises about their bits."""

import platform
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flm.kernels.build import SOURCE, load_kernels
from flm.kernels.library import Kernels
from flm.kernels.reference import linear, rounded
from flm.kvcache.pool import KVPool
from flm.models.files import open_model
from flm.models.fused import PAGE_SIZE, Run
from flm.models.registry import load_fused
from tests.kernels.test_packed import SHAPES, random_q4, random_q8
from tests.support.tiny import tiny_folder

MAKERS = [random_q4, random_q8]
IS_X86 = platform.machine() == "x86_64"


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    found = load_kernels()
    assert found.kernels is not None, found.problem
    return found.kernels


def rows(num_rows: int, num_in: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((num_rows, num_in)).astype(np.float32)


@pytest.mark.parametrize("shape", [*SHAPES, (200, 576), (64, 1536)])
@pytest.mark.parametrize("make", MAKERS)
def test_products_agree_with_the_twin(kernels: Kernels, make: Any, shape: tuple[int, int]) -> None:
    packed, _ = make(*shape)
    x = rows(13, shape[1])
    wanted = linear(x, packed)
    found = kernels.linear(packed, x, 2)
    np.testing.assert_allclose(found, wanted, atol=2e-6 * np.abs(wanted).max() + 1e-6)


@pytest.mark.parametrize("make", MAKERS)
def test_a_row_has_the_same_bits_beside_any_others(kernels: Kernels, make: Any) -> None:
    packed, _ = make(200, 576)
    x = rows(300, 576)
    whole = kernels.linear(packed, x, 2)
    for first, last in [(0, 1), (0, 2), (3, 6), (10, 17), (40, 49), (250, 300), (299, 300)]:
        for threads in (1, 2, 3):
            part = kernels.linear(packed, x[first:last], threads)
            np.testing.assert_array_equal(part, whole[first:last])


@pytest.mark.parametrize("make", MAKERS)
def test_extreme_activations(kernels: Kernels, make: Any) -> None:
    packed, _ = make(32, 64)
    x = np.zeros((4, 64), dtype=np.float32)
    x[1] = 1e30
    x[2, ::2] = -127
    x[3, 5] = 1e-38
    with np.errstate(over="ignore"):
        wanted = linear(x, packed)
    found = kernels.linear(packed, x, 1)
    assert not found[0].any()
    # 4-bit products are sums of large terms that cancel.
    terms = np.abs(x).sum(axis=1, keepdims=True) * 128
    assert (np.abs(found - wanted) <= 1e-6 * terms).all()


@pytest.mark.parametrize("make", MAKERS)
def test_a_row_of_the_matrix(kernels: Kernels, make: Any) -> None:
    packed, weights = make(33, 160)
    for row in (0, 15, 16, 32):
        np.testing.assert_allclose(kernels.read_row(packed, row), weights[row], rtol=1e-6)


def test_rounding_of_activations_keeps_the_largest_of_each_block() -> None:
    x = rows(3, 40)
    y = rounded(x)
    for start in range(0, 40, 16):
        block, found = x[:, start : start + 16], y[:, start : start + 16]
        top = np.abs(block).max(axis=1)
        np.testing.assert_allclose(np.abs(found).max(axis=1), top, rtol=1e-6)
        assert (np.abs(found - block) <= 0.501 * top[:, None] / 127).all()


# --- the same source for other CPUs ------------------------------------------------------------


def built_for(folder: Path, *flags: str, threads: str = "-fopenmp") -> Kernels:
    out = folder / "kernels.so"
    command = ["c++", "-O2", "-std=c++17", "-ffp-contract=off", threads, "-fPIC", "-shared"]
    source = str(SOURCE / "forward.cpp")
    subprocess.run([*command, *flags, source, "-o", str(out)], check=True, timeout=200)
    return Kernels(out)


def instruction_sets() -> list[tuple[str, ...]]:
    """Flags for older CPUs than this one, and for newer ones without their newest units."""
    if not IS_X86:
        return [()]
    known = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
    sets: list[tuple[str, ...]] = [("-march=x86-64-v3",), ("-march=x86-64",)]
    if "avx_vnni" in known:
        sets.append(("-march=x86-64-v3", "-mavxvnni"))
    if "avx512bw" in known:
        sets.append(("-march=x86-64-v4",))
    if "avx512_vnni" in known:
        sets.append(("-march=x86-64-v4", "-mavx512vnni"))
    if "amx_tile" in known:
        sets.append(("-march=native", "-mno-amx-tile", "-mno-amx-int8", "-mno-amx-bf16"))
    return sets


@pytest.fixture(scope="module", params=instruction_sets(), ids=" ".join)
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    return built_for(tmp_path_factory.mktemp("kernels"), *request.param)


@pytest.mark.parametrize("kv_dtype", [torch.bfloat16, torch.int8])
def test_networks_agree_on_other_instruction_sets(
    kernels: Kernels, other: Kernels, tmp_path: Path, kv_dtype: torch.dtype
) -> None:
    files = open_model(tiny_folder(tmp_path / "tiny", "qwen3"))
    logits = []
    for one in (kernels, other):
        model = load_fused(files, one)
        pool = KVPool(model.layout, 20, PAGE_SIZE, kv_dtype, "cpu")
        model.bind(pool.keys, pool.values)
        ids, table = [(7 * i * i + 3) % 500 for i in range(551)], range(20)
        chunk = model.forward([Run(ids[:550], 0, table)], range(550))
        logits.append(torch.cat((chunk, model.forward([Run(ids[550:], 550, table)], [0]))))
    assert (logits[0] - logits[1]).abs().mean() < 0.02 * logits[0].std()


def test_other_instruction_sets_agree(kernels: Kernels, other: Kernels) -> None:
    for make in MAKERS:
        packed, _ = make(40, 224)
        x = rows(9, 224)
        wanted = kernels.linear(packed, x, 1)
        found = other.linear(packed, x, 1)
        np.testing.assert_allclose(found, wanted, atol=2e-6 * np.abs(wanted).max())


def test_threads_without_openmp(kernels: Kernels, tmp_path: Path) -> None:
    other = built_for(tmp_path, "-march=native", threads="-pthread")
    packed, _ = random_q4(200, 576)
    x = rows(40, 576)
    wanted = kernels.linear(packed, x, 2)

    def works(num_threads: int) -> bool:
        return all(
            np.array_equal(other.linear(packed, x[:count], num_threads), wanted[:count])
            for count in (1, 7, 40) * 20
        )

    assert all(works(num_threads) for num_threads in (1, 3, 2, 5))
    # Several callers at once, each with as many threads as it likes.
    with ThreadPoolExecutor(4) as callers:
        assert all(callers.map(works, (2, 3, 1, 4)))
