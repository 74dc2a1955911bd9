import json
from pathlib import Path
from typing import Any

import pytest

from flm.errors import ModelFileError
from flm.models.hf_tokenizer import read_hf_tokenizer
from flm.types import TokenizerData
from tests.support.tiny import CHATML, ENDOFTEXT, IM_END, tiny_folder, tiny_tokenizer_json

NONE: frozenset[int] = frozenset()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_folder(tmp_path)


def read(folder: Path, **changes: Any) -> TokenizerData:
    """With changes to tokenizer_config.json; ``...`` takes a key away."""
    path = folder / "tokenizer_config.json"
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not ...}))
    return read_hf_tokenizer(folder, NONE)


def change_tokenizer(folder: Path, **changes: Any) -> None:
    values = json.loads(tiny_tokenizer_json()) | changes
    (folder / "tokenizer.json").write_text(json.dumps(values))


def test_the_tiny_one(folder: Path) -> None:
    data = read_hf_tokenizer(folder, frozenset({7}))
    assert data.tokenizer_json == tiny_tokenizer_json()
    assert data.vocab is None
    assert data.chat_template == CHATML
    assert (data.bos_id, data.pad_id, data.unk_id) == (ENDOFTEXT, ENDOFTEXT, None)
    assert data.eos_ids == {7, IM_END}
    assert (data.add_bos, data.add_eos) == (False, False)
    assert data.named_templates == {}


def test_special_tokens_as_objects_and_from_the_older_file(folder: Path) -> None:
    (folder / "special_tokens_map.json").write_text(
        json.dumps({"unk_token": "<|im_start|>", "bos_token": "<|im_start|>"})
    )
    data = read(folder, eos_token={"content": "<|endoftext|>"}, unk_token=..., bos_token=None)
    assert data.eos_ids == {ENDOFTEXT}
    assert data.unk_id == 1
    assert data.bos_id is None, "an explicit null wins over the older file"


def test_a_token_that_the_vocabulary_lacks(folder: Path) -> None:
    data = read(folder, bos_token="<s>", add_bos_token=True)
    assert data.bos_id is None
    assert not data.add_bos


# --- BOS and EOS around a text ---

BOS = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}
EOS = {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
BYTE_LEVEL = {"type": "ByteLevel"}


def template(*pieces: dict[str, Any]) -> dict[str, Any]:
    return {"type": "TemplateProcessing", "single": list(pieces)}


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        (None, (False, False)),
        (BYTE_LEVEL, (False, False)),
        (template(TEXT), (False, False)),
        (template(BOS, TEXT), (True, False)),
        (template(TEXT, EOS), (False, True)),
        (template(BOS, TEXT, EOS), (True, True)),
        ({"type": "Sequence", "processors": [BYTE_LEVEL, template(BOS, TEXT)]}, (True, False)),
        ({"type": "Sequence", "processors": [BYTE_LEVEL]}, (False, False)),
    ],
)
def test_the_post_processor_says_what_is_added(
    processor: Any, expected: tuple[bool, bool], folder: Path
) -> None:
    change_tokenizer(folder, post_processor=processor)
    data = read(folder, add_bos_token=...)
    assert (data.add_bos, data.add_eos) == expected


def test_the_flags_win_over_the_post_processor(folder: Path) -> None:
    change_tokenizer(folder, post_processor=template(BOS, TEXT))
    data = read(folder, add_bos_token=False, add_eos_token=True)
    assert (data.add_bos, data.add_eos) == (False, True)


# --- templates ---


def test_named_templates_in_the_configuration(folder: Path) -> None:
    both = [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}]
    data = read(folder, chat_template=both)
    assert data.chat_template == "A"
    assert data.named_templates == {"tool_use": "B"}


def test_template_files_win(folder: Path) -> None:
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "J"}))
    assert read(folder).chat_template == "J"
    (folder / "chat_template.jinja").write_text("é{{ x }}\n", encoding="utf-8")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("R")
    data = read(folder)
    assert data.chat_template == "é{{ x }}\n"
    assert data.named_templates == {"rag": "R"}


@pytest.mark.parametrize("value", [None, ..., 5, {}, [1], [{"name": "default"}]])
def test_no_template(value: Any, folder: Path) -> None:
    assert read(folder, chat_template=value).chat_template is None


# --- damage ---


def test_a_folder_without_a_tokenizer_says_how_to_make_one(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path, with_tokenizer=False)
    with pytest.raises(ModelFileError, match=r"no tokenizer\.json.*save_pretrained"):
        read_hf_tokenizer(folder, NONE)


def test_a_folder_without_a_tokenizer_configuration_is_fine(folder: Path) -> None:
    (folder / "tokenizer_config.json").unlink()
    data = read_hf_tokenizer(folder, frozenset({2}))
    assert (data.bos_id, data.chat_template, data.eos_ids) == (None, None, {2})


@pytest.mark.parametrize(
    "changes",
    [
        {"model": None},
        {"model": {"vocab": 5}},
        {"model": {"vocab": {"a": "x"}}},
        {"added_tokens": [{"content": "a"}]},
        {"added_tokens": [{"content": "a", "id": [1]}]},
        {"added_tokens": 7},
        {"post_processor": []},
        {"post_processor": {"type": "TemplateProcessing"}},
    ],
)
def test_a_damaged_tokenizer(changes: dict[str, Any], folder: Path) -> None:
    change_tokenizer(folder, **changes)
    with pytest.raises(ModelFileError, match=r"tokenizer\.json is damaged: not a tokenizer"):
        read_hf_tokenizer(folder, NONE)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe{}", b"[" * 100_000])
def test_files_that_are_no_json(content: bytes, folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(content)
    with pytest.raises(ModelFileError, match="is damaged"):
        read_hf_tokenizer(folder, NONE)
