import json
import struct
from pathlib import Path
from typing import Any

import pytest

from flm.errors import ModelFileError
from flm.models.safetensors_header import read_safetensors_index
from tests.support.tiny import TinySpec, tiny_folder, tiny_tensors


@pytest.mark.parametrize("sharded", [False, True])
def test_every_tensor_with_its_place(sharded: bool, tmp_path: Path) -> None:
    found = read_safetensors_index(tiny_folder(tmp_path, sharded=sharded))
    wanted = tiny_tensors(TinySpec())
    assert {name: tensor.shape for name, tensor in found.items()} == {
        name: tuple(tensor.shape) for name, tensor in wanted.items()
    }
    assert {tensor.dtype for tensor in found.values()} == {"F32"}
    assert len({tensor.path for tensor in found.values()}) == (2 if sharded else 1)
    assert sum(tensor.num_elements for tensor in found.values()) == sum(
        tensor.numel() for tensor in wanted.values()
    )


def write(folder: Path, header: Any, data: bytes = b"\0" * 64) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def entry(**changes: Any) -> dict[str, Any]:
    return {"w": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]} | changes}


def test_the_smallest_file(tmp_path: Path) -> None:
    write(tmp_path, entry() | {"__metadata__": {"format": "pt"}})
    assert list(read_safetensors_index(tmp_path)) == ["w"]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        ([], "not an object"),
        ({"w": 1}, "the entry of tensor 'w' is wrong"),
        (entry(shape="4"), "the entry of tensor 'w' is wrong"),
        (entry(shape=[4, -4]), "the entry of tensor 'w' is wrong"),
        (entry(shape=[1 << 40]), "the entry of tensor 'w' is wrong"),
        (entry(dtype=None), "the entry of tensor 'w' is wrong"),
        (entry(data_offsets=[0]), "the entry of tensor 'w' is wrong"),
        (entry(data_offsets=[0, 100]), "it ends 36 bytes early"),
    ],
)
def test_damage_is_named(header: Any, message: str, tmp_path: Path) -> None:
    write(tmp_path, header)
    with pytest.raises(ModelFileError, match=message):
        read_safetensors_index(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\1\2\3", b"\xff" * 8, struct.pack("<Q", 100) + b"{}"])
def test_a_file_too_short_for_its_header(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"model\.safetensors is damaged"):
        read_safetensors_index(tmp_path)


def test_no_weights_at_all(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"neither model\.safetensors nor"):
        read_safetensors_index(tmp_path)


def test_a_missing_shard(tmp_path: Path) -> None:
    tiny_folder(tmp_path, sharded=True)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"model-00002-of-00002\.safetensors cannot be read"):
        read_safetensors_index(tmp_path)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "no weight_map"),
        ({"weight_map": {}}, "no weight_map"),
        ({"weight_map": {"w": "../other/model.safetensors"}}, "not a file beside it"),
        ({"weight_map": {"w": 5}}, "5 cannot be read"),
        (
            {"weight_map": {"not there": "model-00001-of-00002.safetensors"}},
            "the tensor 'not there' is missing",
        ),
        (
            {"weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors",
                            "model.norm.weight": "model-00001-of-00002.safetensors"}},
            "the tensor '.*' is missing",
        ),
    ],
)  # fmt: skip
def test_a_wrong_index(index: dict[str, Any], message: str, tmp_path: Path) -> None:
    tiny_folder(tmp_path, sharded=True)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelFileError, match=message):
        read_safetensors_index(tmp_path)
