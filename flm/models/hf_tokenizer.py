"""The tokenizer files of a Hugging Face folder to TokenizerData."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flm.errors import ModelFileError
from flm.models.config import MAX_SIZE
from flm.models.json_file import read_object_if_there, read_text
from flm.types import TokenizerData


def read_hf_tokenizer(folder: Path, eos_ids: frozenset[int]) -> TokenizerData:
    """The tokenizer in ``folder``; ``eos_ids`` are those that the configurations name, to which
    the tokenizer's own eos token is added.

    Raises ModelFileError where tokenizer.json is missing or damaged.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelFileError(
            f"{folder} has no tokenizer.json. Fetch it, or make it with transformers: "
            "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)."
        )
    text = read_text(path)
    special = _Special(
        vocab=_read_vocab(path, text),
        settings=read_object_if_there(folder / "tokenizer_config.json"),
        older=read_object_if_there(folder / "special_tokens_map.json"),
    )
    bos_id = special.token_id("bos_token")
    eos_id = special.token_id("eos_token")
    templates = _templates(folder, special.settings)
    return TokenizerData(
        tokenizer_json=text,
        vocab=None,
        chat_template=templates.pop("default", None),
        bos_id=bos_id,
        eos_ids=eos_ids if eos_id is None else eos_ids | {eos_id},
        unk_id=special.token_id("unk_token"),
        pad_id=special.token_id("pad_token"),
        add_bos=bos_id is not None and special.adds("bos_token", place=0),
        add_eos=eos_id is not None and special.adds("eos_token", place=-1),
        named_templates=templates,
    )


# --- special tokens ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Vocab:
    """What of tokenizer.json the special tokens need: ids by text, and the tokens that the
    post-processor puts around a text (its ``single`` template, the text itself as None)."""

    ids: Mapping[str, int]
    around: tuple[str | None, ...]


def _read_vocab(path: Path, text: str) -> _Vocab:
    try:
        data = json.loads(text)
        return _Vocab(_token_ids(data), _around(data.get("post_processor")))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ModelFileError(
            f"{path} is damaged: not a tokenizer ({error}). Fetch the model again."
        ) from error


def _token_ids(data: Mapping[str, Any]) -> dict[str, int]:
    vocab = data["model"]["vocab"]
    # A unigram model lists [text, score] pairs in the order of the ids.
    ids = dict(vocab) if isinstance(vocab, dict) else {pair[0]: i for i, pair in enumerate(vocab)}
    ids |= {entry["content"]: entry["id"] for entry in data.get("added_tokens") or ()}
    wrong = next((text for text, value in ids.items() if not _is_id(value)), None)
    if wrong is not None:
        raise ValueError(f"the id of {wrong[:80]!r} is no number")
    return ids


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_SIZE


def _around(processor: Mapping[str, Any] | None) -> tuple[str | None, ...]:
    if processor is None:
        return ()
    if processor["type"] == "Sequence":
        inner = [_around(step) for step in processor["processors"]]
        return next((tokens for tokens in inner if tokens), ())
    if processor["type"] != "TemplateProcessing":
        return ()
    pieces = [piece.get("SpecialToken") for piece in processor["single"]]
    return tuple(None if piece is None else str(piece["id"]) for piece in pieces)


@dataclass(frozen=True, slots=True)
class _Special:
    """The special tokens by role; ``older`` is special_tokens_map.json, for what the tokenizer
    configuration leaves out."""

    vocab: _Vocab
    settings: Mapping[str, Any]
    older: Mapping[str, Any]

    def token(self, role: str) -> str | None:
        value = self.settings[role] if role in self.settings else self.older.get(role)
        if isinstance(value, Mapping):
            value = value.get("content")
        return value if isinstance(value, str) else None

    def token_id(self, role: str) -> int | None:
        token = self.token(role)
        return None if token is None else self.vocab.ids.get(token)

    def adds(self, role: str, *, place: int) -> bool:
        """Whether a text gets this token: by the flag (``add_bos_token``), else by the
        post-processor having it at ``place``."""
        flag = self.settings.get(f"add_{role}")
        if isinstance(flag, bool):
            return flag
        around = self.vocab.around
        return bool(around) and around[place] == self.token(role)


# --- chat templates ----------------------------------------------------------------------------


def _templates(folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """By name, the main one as ``default``. A file of its own wins over the configuration, as it
    does in transformers."""
    found = _configured(settings.get("chat_template"))
    found |= _configured(read_object_if_there(folder / "chat_template.json").get("chat_template"))
    if (folder / "chat_template.jinja").is_file():
        found["default"] = read_text(folder / "chat_template.jinja")
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[path.stem] = read_text(path)
    return found


def _configured(value: Any) -> dict[str, str]:
    if isinstance(value, str):
        return {"default": value}
    if not isinstance(value, list):
        return {}
    pairs = [entry for entry in value if isinstance(entry, Mapping)]
    return {
        str(pair["name"]): str(pair["template"])
        for pair in pairs
        if "name" in pair and "template" in pair
    }
