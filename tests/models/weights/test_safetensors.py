from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from flm.errors import ModelFileError
from flm.models.files import open_model
from flm.models.weights.names import gguf_name, hf_name
from flm.models.weights.safetensors import SafetensorsWeights
from tests.support.tiny import TinySpec, tiny_folder, tiny_tensors

CPU = torch.device("cpu")
QUERY = "layers.1.query.weight"


def weights(folder: Path, dtype: torch.dtype = torch.float32) -> SafetensorsWeights:
    tensors = open_model(folder).safetensors_tensors
    return SafetensorsWeights(folder, tensors, dtype, CPU)


def store(folder: Path, name: str, tensor: torch.Tensor) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors | {name: tensor}, path)


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_tensor_in_the_wanted_dtype(
    sharded: bool, dtype: torch.dtype, tmp_path: Path
) -> None:
    reader = weights(tiny_folder(tmp_path, sharded=sharded), dtype)
    originals = tiny_tensors(TinySpec())
    for name in ("embedding.weight", "norm.weight", QUERY, "layers.0.down.weight"):
        wanted = originals[hf_name(name)]
        assert torch.equal(reader.tensor(name, *wanted.shape), wanted.to(dtype))


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16, torch.float64])
def test_stored_in_another_dtype(stored: torch.dtype, tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path)
    wanted = tiny_tensors(TinySpec())[hf_name(QUERY)].to(stored)
    store(folder, hf_name(QUERY), wanted)
    assert torch.equal(weights(folder).tensor(QUERY, 64, 64), wanted.float())


def test_a_dtype_that_is_no_plain_weight(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path)
    store(folder, hf_name(QUERY), torch.ones(64, 64, dtype=torch.int8))
    with pytest.raises(ModelFileError, match="weights of type I8 cannot be read"):
        weights(folder).tensor(QUERY, 64, 64)


def test_a_missing_tensor_and_a_wrong_shape_are_named(tmp_path: Path) -> None:
    reader = weights(tiny_folder(tmp_path))
    with pytest.raises(ModelFileError, match=r"'lm_head\.weight' is missing"):
        reader.tensor("head.weight", 512, 64)
    with pytest.raises(
        ModelFileError, match=r"shape \[64, 64\], the configuration says \[64, 32\]"
    ):
        reader.tensor(QUERY, 64, 32)


def test_a_file_that_shrinks_after_it_was_opened(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path)
    reader = weights(folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(ModelFileError, match=r"model\.safetensors is damaged"):
        reader.tensor(QUERY, 64, 64)


def test_a_tensor_already_in_the_dtype_is_not_copied(tmp_path: Path) -> None:
    reader = weights(tiny_folder(tmp_path))
    again = reader.tensor(QUERY, 64, 64)
    assert again.data_ptr() == reader.tensor(QUERY, 64, 64).data_ptr()


@pytest.mark.parametrize(
    ("name", "hf", "gguf"),
    [
        ("embedding.weight", "model.embed_tokens.weight", "token_embd.weight"),
        ("head.weight", "lm_head.weight", "output.weight"),
        ("layers.12.query.bias", "model.layers.12.self_attn.q_proj.bias", "blk.12.attn_q.bias"),
        ("layers.0.down.weight", "model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"),
    ],
)
def test_names(name: str, hf: str, gguf: str) -> None:
    assert hf_name(name) == hf
    assert gguf_name(name) == gguf
