import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flm.errors import ModelFileError
from flm.models.config import FactorScaling, Llama3Scaling
from flm.models.files import fingerprint, open_model
from tests.support.tiny import (
    CHATML,
    LLAMA3_SCALING,
    YARN_SCALING,
    Architecture,
    tiny_folder,
    tiny_gguf,
    tiny_tokenizer,
)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_both_formats_describe_one_model(
    architecture: Architecture, tied: bool, tmp_path: Path
) -> None:
    folder = tiny_folder(tmp_path / "f", architecture, tied=tied, rope_scaling=YARN_SCALING)
    path = tiny_gguf(tmp_path / "m.gguf", architecture, tied=tied, rope_scaling=YARN_SCALING)
    first, second = open_model(folder), open_model(path)
    assert (first.format, second.format) == ("safetensors", "gguf")
    eps = second.config.rms_norm_eps
    assert eps == pytest.approx(1e-5)
    assert replace(first.config, rms_norm_eps=eps) == second.config
    assert first.labels.num_parameters == second.labels.num_parameters
    for one in (first, second):
        assert one.tokenizer.bos_id == 0
        assert one.tokenizer.eos_ids == {0, 2}
        assert one.tokenizer.chat_template == CHATML
        assert not one.tokenizer.add_bos
        assert one.sampling == {}


def test_llama3_scaling_in_both_formats(tmp_path: Path) -> None:
    folder = open_model(tiny_folder(tmp_path / "f", rope_scaling=LLAMA3_SCALING))
    file = open_model(tiny_gguf(tmp_path / "m.gguf", rope_scaling=LLAMA3_SCALING))
    assert isinstance(folder.config.rope_scaling, Llama3Scaling)
    assert isinstance(file.config.rope_scaling, FactorScaling)
    assert file.labels.num_parameters == folder.labels.num_parameters, "factors are no weights"


def test_the_gguf_vocabulary(tmp_path: Path) -> None:
    vocab = open_model(tiny_gguf(tmp_path / "m.gguf")).tokenizer.vocab
    assert vocab is not None
    assert (vocab.model, vocab.pre) == ("gpt2", "gpt-2")
    tokenizer = tiny_tokenizer()
    assert [tokenizer.id_to_token(i) for i in range(512)] == list(vocab.tokens)
    assert vocab.token_types[:3] == (3, 3, 3)
    assert vocab.token_types[-2:] == (4, 4)
    assert len(vocab.merges) > 200


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({}, {0, 2}),
        ({"tokenizer.ggml.eot_token_id": 5}, {0, 2, 5}),
        ({"tokenizer.ggml.eom_token_id": 511}, {0, 2, 511}),
        ({"tokenizer.ggml.eot_token_id": 512}, {0, 2}),
        ({"tokenizer.ggml.eot_token_id": 2**32 - 1}, {0, 2}),
    ],
)
def test_every_end_token_of_a_gguf(
    extra: dict[str, Any], expected: set[int], tmp_path: Path
) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", extra=extra)
    assert open_model(path).tokenizer.eos_ids == expected


@pytest.mark.parametrize(
    ("generation", "expected"),
    [({}, {2}), ({"eos_token_id": 7}, {2, 7}), ({"eos_token_id": [7, None, True, -1]}, {2, 7})],
)
def test_every_end_token_of_a_folder(
    generation: dict[str, Any], expected: set[int], tmp_path: Path
) -> None:
    folder = tiny_folder(tmp_path, generation_config=generation)
    assert open_model(folder).tokenizer.eos_ids == expected


# --- sampling defaults ---


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        (
            {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0, "do_sample": True},
            {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.0},
        ),
        ({"repetition_penalty": 1.05, "temperature": None}, {"repetition_penalty": 1.05}),
        ({"temperature": 0.6, "do_sample": False}, {"temperature": 0.0}),
        ({"temperature": 0.6}, {"temperature": 0.6}),
        ({"top_k": 0}, {"top_k": 512}),
        ({"top_k": 100_000}, {"top_k": 512}),
        ({"top_p": 1.5, "temperature": "hot", "repetition_penalty": 0}, {}),
    ],
)
def test_generation_config_defaults(
    generation: dict[str, Any], expected: dict[str, float], tmp_path: Path
) -> None:
    assert open_model(tiny_folder(tmp_path, generation_config=generation)).sampling == expected


def test_gguf_defaults(tmp_path: Path) -> None:
    extra: dict[str, float | int] = {
        "general.sampling.temp": 0.7,
        "general.sampling.top_k": 20,
        "general.sampling.top_p": 0.8,
        "general.sampling.penalty_repeat": 1.05,
    }
    found = open_model(tiny_gguf(tmp_path / "m.gguf", extra=extra)).sampling
    wanted = {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.05}
    assert found == wanted, "not 0.699999988079071, which is how float32 says 0.7"


# --- labels ---


def test_labels(tmp_path: Path) -> None:
    file = open_model(tiny_gguf(tmp_path / "m.gguf", quantisation="Q4_0")).labels
    assert (file.name, file.family) == ("Tiny Random", "llama")
    assert (file.quantization, file.parameter_size) == ("Q4_0", "0.1M")
    assert file.num_bytes == (tmp_path / "m.gguf").stat().st_size
    folder = open_model(tiny_folder(tmp_path / "some-model", "qwen3", sharded=True)).labels
    assert (folder.name, folder.family, folder.quantization) == ("some-model", "qwen3", "F32")
    assert folder.num_bytes == sum(
        path.stat().st_size for path in (tmp_path / "some-model").glob("*.safetensors")
    )


# --- ways to name a model ---


def test_split_files(tmp_path: Path) -> None:
    first = tiny_gguf(tmp_path / "m.gguf", num_files=3)
    whole = open_model(tiny_gguf(tmp_path / "one.gguf"))
    for path in (first, tmp_path / "m-00002-of-00003.gguf"):
        parts = open_model(path)
        assert parts.path == first
        assert set(parts.gguf_tensors) == set(whole.gguf_tensors)
        assert parts.labels.num_parameters == whole.labels.num_parameters
    (tmp_path / "m-00002-of-00003.gguf").rename(tmp_path / "away")
    with pytest.raises(ModelFileError, match=r"missing: m-00002-of-00003\.gguf"):
        open_model(first)
    first.rename(tmp_path / "renamed.gguf")
    with pytest.raises(ModelFileError, match="is one of 3 parts"):
        open_model(tmp_path / "renamed.gguf")


def test_a_folder_with_gguf_files(tmp_path: Path) -> None:
    tiny_gguf(tmp_path / "m.gguf", num_files=2)
    assert open_model(tmp_path).path.name == "m-00001-of-00002.gguf"
    tiny_gguf(tmp_path / "other.gguf")
    with pytest.raises(ModelFileError, match=r"several models: m-00001-of-00002\.gguf, other"):
        open_model(tmp_path)


def test_paths_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="does not exist"):
        open_model(tmp_path / "nothing")
    with pytest.raises(ModelFileError, match=r"neither a config\.json nor a \.gguf"):
        open_model(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ModelFileError, match="is not a GGUF file"):
        open_model(tmp_path / "notes.txt")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="is no file"):
        open_model(tmp_path / "pipe")


def test_a_gguf_that_is_no_language_model(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf")
    data = path.read_bytes().replace(b"token_embd.weight", b"token_lost.weight")
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=r"'token_embd\.weight' is missing"):
        open_model(path)


def test_a_gguf_without_a_vocabulary(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes().replace(b"tokenizer.ggml.tokens", b"tokenizer.ggml.nokens"))
    with pytest.raises(ModelFileError, match="has no vocabulary"):
        open_model(path)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "\x00"])
def test_a_config_that_is_no_object(content: str, tmp_path: Path) -> None:
    tiny_folder(tmp_path)
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelFileError, match=r"config\.json is damaged"):
        open_model(tmp_path)


def test_generation_config_is_optional(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path)
    (folder / "generation_config.json").unlink()
    assert open_model(folder).tokenizer.eos_ids == {2}


def test_opening_needs_no_torch(tmp_path: Path) -> None:
    paths = [tiny_folder(tmp_path / "f"), tiny_gguf(tmp_path / "m.gguf")]
    code = (
        "import sys, json, pathlib; from flm.models.files import fingerprint, open_model\n"
        "for path in sys.argv[1:]: open_model(pathlib.Path(path))\n"
        "print(json.dumps([name in sys.modules for name in ('torch', 'transformers')]))"
    )
    command = [sys.executable, "-c", code, *map(str, paths)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == [False, False]


def test_a_fingerprint_shows_every_change_of_a_models_files(tmp_path: Path) -> None:
    for name in ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "other.gguf"):
        (tmp_path / name).write_bytes(b"x")
    split = fingerprint(tmp_path / "m-00001-of-00002.gguf")
    assert [Path(name).name[:7] for name, _, _ in split] == ["m-00001", "m-00002"]
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(b"xy")
    assert fingerprint(tmp_path / "m-00001-of-00002.gguf") != split
    whole = fingerprint(tmp_path)
    assert len(whole) == 3
    os.utime(tmp_path / "other.gguf", ns=(5, 5))
    assert fingerprint(tmp_path) != whole
    assert fingerprint(tmp_path / "other.gguf") == ((str(tmp_path / "other.gguf"), 5, 1),)
    assert fingerprint(tmp_path / "none") == ()
