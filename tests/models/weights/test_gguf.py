from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor

from flm.errors import ModelFileError
from flm.models.files import open_model
from flm.models.gguf_header import read_gguf_header
from flm.models.weights.gguf import GGUFWeights
from flm.models.weights.names import hf_name
from tests.support.tiny import Architecture, TinySpec, tiny_gguf, tiny_tensors

CPU = torch.device("cpu")
QUERY = "layers.1.query.weight"


def weights(path: Path, dtype: torch.dtype = torch.float32) -> GGUFWeights:
    files = open_model(path)
    return GGUFWeights(files.path, files.gguf_tensors, files.config, dtype, CPU)


def original(name: str, architecture: Architecture = "llama") -> Tensor:
    return tiny_tensors(TinySpec(architecture))[hf_name(name)]


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("part", ["query", "key", "value", "output", "gate", "up", "down"])
def test_matrices_come_back_as_they_were(
    architecture: Architecture, part: str, tmp_path: Path
) -> None:
    wanted = original(f"layers.1.{part}.weight", architecture)
    reader = weights(tiny_gguf(tmp_path / "m.gguf", architecture))
    found = reader.tensor(f"layers.1.{part}.weight", *wanted.shape)
    assert torch.equal(found, wanted)


def test_biases_and_norms(tmp_path: Path) -> None:
    reader = weights(tiny_gguf(tmp_path / "m.gguf", "qwen2"))
    for name in ("layers.0.query.bias", "layers.1.mlp_norm.weight", "norm.weight"):
        wanted = original(name, "qwen2")
        assert torch.equal(reader.tensor(name, *wanted.shape), wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("quantisation", ["F32", "F16", "BF16", "Q8_0"])
def test_any_type_in_any_dtype(quantisation: str, dtype: torch.dtype, tmp_path: Path) -> None:
    reader = weights(tiny_gguf(tmp_path / "m.gguf", quantisation=quantisation), dtype)
    found = reader.tensor(QUERY, 64, 64)
    assert found.dtype == dtype
    assert torch.allclose(found.float(), original(QUERY), atol=0.02)


def test_every_quantisation_the_library_can_read(tmp_path: Path) -> None:
    """Random bytes as blocks of each kind, against the library's own reader."""
    kinds = [kind for kind in gguf.quants._type_traits if kind.name != "BF16"]
    assert len(kinds) > 20
    path = tmp_path / "all.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    dice = np.random.default_rng(0)
    for kind in kinds:
        block_len, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        rows = dice.integers(0, 40, (4, 1024 // block_len * block_bytes), dtype=np.uint8)
        writer.add_tensor(f"blk.{int(kind)}.attn_v.weight", rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    config = open_model(tiny_gguf(tmp_path / "m.gguf")).config
    reader = GGUFWeights(path, read_gguf_header(path).tensors, config, torch.float32, CPU)
    theirs = {tensor.tensor_type: tensor for tensor in gguf.GGUFReader(path).tensors}
    for kind in kinds:
        found = reader.tensor(f"layers.{int(kind)}.value.weight", 4, 1024)
        wanted = gguf.quants.dequantize(theirs[kind].data, kind)
        assert np.array_equal(found.numpy(), wanted, equal_nan=True), kind.name


def test_a_type_that_cannot_be_dequantised(tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    kind = gguf.GGMLQuantizationType.Q8_K
    data = np.zeros((4, gguf.GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
    writer.add_tensor("blk.0.attn_v.weight", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    config = open_model(tiny_gguf(tmp_path / "m.gguf")).config
    reader = GGUFWeights(path, read_gguf_header(path).tensors, config, torch.float32, CPU)
    with pytest.raises(ModelFileError, match=r"Q8_K of .* cannot be read\. Use a file of another"):
        reader.tensor("layers.0.value.weight", 4, 256)


def test_a_missing_tensor_and_a_wrong_shape_are_named(tmp_path: Path) -> None:
    reader = weights(tiny_gguf(tmp_path / "m.gguf"))
    with pytest.raises(ModelFileError, match=r"'blk\.7\.attn_q\.weight' is missing"):
        reader.tensor("layers.7.query.weight", 64, 64)
    with pytest.raises(
        ModelFileError, match=r"shape \[64, 64\], the configuration says \[64, 32\]"
    ):
        reader.tensor(QUERY, 64, 32)


def test_a_file_that_shrinks_after_it_was_opened(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf")
    reader = weights(path)
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(ModelFileError, match="it is shorter now"):
        reader.tensor("layers.1.down.weight", 64, 128)


def test_plain_weights_share_the_file_and_never_change_it(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf")
    before = path.read_bytes()
    first = weights(path).tensor("layers.0.value.weight", 32, 64)
    first.zero_()
    assert path.read_bytes() == before
