import random
import struct
from pathlib import Path

import gguf
import pytest

from flm.errors import ModelFileError
from flm.models.gguf_header import read_gguf_header
from tests.support.tiny import tiny_gguf


def test_it_reads_what_the_library_reads(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "model.gguf", quantisation="Q8_0", tied=False)
    ours, theirs = read_gguf_header(path), gguf.GGUFReader(path)
    fields = {name: field for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert set(ours.metadata) == set(fields)
    for name, field in fields.items():
        value = field.contents()
        assert ours.metadata[name] == (tuple(value) if isinstance(value, list) else value)
    assert len(ours.tensors) == len(theirs.tensors)
    for tensor in theirs.tensors:
        found = ours.tensors[tensor.name]
        assert found.shape == tuple(reversed(tensor.shape.tolist()))
        assert found.kind == tensor.tensor_type
        assert (found.offset, found.num_bytes) == (tensor.data_offset, tensor.n_bytes)
        assert found.num_elements == tensor.n_elements


def test_every_kind_of_value(tmp_path: Path) -> None:
    path = tmp_path / "values.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("u8", 255)
    writer.add_int8("i8", -128)
    writer.add_uint16("u16", 65535)
    writer.add_int16("i16", -32768)
    writer.add_uint64("u64", 2**64 - 1)
    writer.add_int64("i64", -(2**63))
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_string("text", "é日本😀")
    writer.add_array("numbers", [1, -2, 3])
    writer.add_array("texts", ["", "a", "é"])
    writer.add_array("flags", [True, False])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata = dict(read_gguf_header(path).metadata)
    del metadata["general.architecture"]
    assert metadata == {
        "u8": 255,
        "i8": -128,
        "u16": 65535,
        "i16": -32768,
        "u64": 2**64 - 1,
        "i64": -(2**63),
        "f64": 0.1,
        "yes": True,
        "text": "é日本😀",
        "numbers": (1, -2, 3),
        "texts": ("", "a", "é"),
        "flags": (True, False),
    }


# --- damage --------------------------------------------------------------------------------------


def header(version: int = 3, num_tensors: int = 0, num_pairs: int = 0, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_pairs) + rest


def pair(kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", 1) + b"k" + struct.pack("<I", kind) + value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"GG", "ends early"),
        (b"<html>Not found</html>", "is not a GGUF file"),
        (header(version=1), "version 1 cannot be read"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "a big-endian file cannot be read"),
        (header(num_tensors=2**60), "promises"),
        (header(num_pairs=2**60), "promises"),
        (header(num_pairs=1, rest=pair(8, struct.pack("<Q", 2**63))), "ends early"),
        (header(num_pairs=1, rest=pair(99, b"\0" * 8)), "unknown type 99"),
        (header(num_pairs=1, rest=pair(9, struct.pack("<IQ", 4, 2**50))), "promises"),
        (header(num_pairs=1, rest=pair(9, struct.pack("<IQ", 8, 3) + b"\0" * 24)[:-9]), "promises"),
        (header(num_pairs=1, rest=pair(9, struct.pack("<IQ", 9, 1) * 9)), "unknown type 9"),
        (header(num_tensors=1, rest=b"\0" * 8 + struct.pack("<I", 9) + b"\0" * 40), "9 dimensions"),
        (
            header(num_tensors=1, rest=b"\0" * 8 + struct.pack("<IQIQ", 1, 32, 77, 0)),
            "unknown type 77",
        ),
        (
            header(num_tensors=1, rest=b"\0" * 8 + struct.pack("<IQIQ", 1, 33, 8, 0)),
            "no whole Q8_0 blocks",
        ),
        (
            header(num_tensors=1, rest=b"\0" * 8 + struct.pack("<IQIQ", 1, 2**62, 0, 0)),
            "bytes early",
        ),
    ],
)
def test_damage_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=message) as caught:
        read_gguf_header(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"none\.gguf cannot be read"):
        read_gguf_header(tmp_path / "none.gguf")


def test_truncation_anywhere_is_an_error(tmp_path: Path) -> None:
    whole = tiny_gguf(tmp_path / "model.gguf").read_bytes()
    path = tmp_path / "part.gguf"
    for size in (4, 20, 24, 100, 3000, 9000, len(whole) // 2, len(whole) - 40):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelFileError, match=r"damaged.*Fetch the file again"):
            read_gguf_header(path)


def test_random_damage_never_crashes(tmp_path: Path) -> None:
    whole = tiny_gguf(tmp_path / "model.gguf").read_bytes()
    path, dice = tmp_path / "bad.gguf", random.Random(0)
    num_errors = 0
    for _ in range(300):
        data = bytearray(whole)
        start = dice.randrange(13_000)
        data[start : start + 8] = dice.choice([b"\xff" * 8, b"\0" * 8, dice.randbytes(8), b""])
        path.write_bytes(data)
        try:
            read_gguf_header(path)
        except ModelFileError:
            num_errors += 1
    assert num_errors > 100
