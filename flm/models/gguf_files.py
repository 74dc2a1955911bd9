"""A GGUF file, or its parts, to ModelFiles."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf.constants import GGMLQuantizationType, LlamaFileType, TokenType

from flm.errors import ModelFileError
from flm.models.config import Fields
from flm.models.gguf_config import GGUFShape, read_gguf_config
from flm.models.gguf_header import GGUFHeader, GGUFTensor, read_gguf_header
from flm.models.model_files import ModelFiles, ModelLabels, sampling_defaults, size_label
from flm.types import GGUFVocab, TokenizerData

_PART: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_ROPE_FACTORS: Final = "rope_freqs.weight"
_EMBEDDING: Final = "token_embd.weight"

_END_OF_TURN: Final = frozenset(
    {
        "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>",
        "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "<end_of_utterance>", "</s>",
        "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    }
)  # fmt: skip
"""Control tokens that end a turn by their text, as llama.cpp takes them: many files name only
one of the two or three tokens that the model really ends with."""

_SAMPLING_KEYS: Final[Mapping[str, str]] = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
}

_BOS_PRE_TOKENIZERS: Final = frozenset({"llama3", "llama-v3", "llama-bpe", "tekken"})
"""Byte-level vocabularies that llama.cpp starts with BOS where the file does not say."""


def open_gguf(path: Path) -> ModelFiles:
    """Open the GGUF model at ``path`` (any part of a split one).

    Raises ModelFileError for a missing part, a damaged file or an unsupported model.
    """
    parts = [read_gguf_header(part) for part in _part_paths(path)]
    metadata = parts[0].metadata
    if len(parts) == 1 and metadata.get("split.count", 1) not in (0, 1):
        raise ModelFileError(
            f"{path} is one of {metadata['split.count']} parts. Give the parts the names they "
            "were made with (NAME-00001-of-0000N.gguf) and name the first."
        )
    tensors: dict[str, GGUFTensor] = {}
    for part in parts:
        tensors |= part.tensors
    config = read_gguf_config(metadata, _shape(path, tensors), path)
    return ModelFiles(
        path=parts[0].path,
        config=config,
        tokenizer=_tokenizer(Fields(path, metadata)),
        sampling=_sampling(metadata, config.vocab_size),
        labels=_labels(parts, tensors),
        gguf_tensors=tensors,
    )


def _part_paths(path: Path) -> list[Path]:
    match = _PART.fullmatch(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    paths = [
        path.with_name(f"{match['stem']}-{number:05d}-of-{count:05d}.gguf")
        for number in range(1, count + 1)
    ]
    missing = [part.name for part in paths if not part.is_file()]
    if missing or not paths:
        raise ModelFileError(
            f"{path}: of its {count} parts these are missing: {', '.join(missing[:5])}. "
            "Fetch them into the same folder."
        )
    return paths


def _shape(path: Path, tensors: Mapping[str, GGUFTensor]) -> GGUFShape:
    embedding = tensors.get(_EMBEDDING)
    if embedding is None:
        raise ModelFileError(
            f"{path}: the tensor {_EMBEDDING!r} is missing. Use the file of a whole "
            "text model, not of a vocabulary, adapter or projector."
        )
    factors = tensors.get(_ROPE_FACTORS)
    return GGUFShape(
        vocab_size=embedding.shape[0],
        tensor_names=frozenset(tensors),
        rope_factors=None if factors is None else _floats(factors),
    )


def _floats(tensor: GGUFTensor) -> tuple[float, ...]:
    if tensor.kind != GGMLQuantizationType.F32:
        raise ModelFileError(
            f"{tensor.path}: {tensor.name!r} is {tensor.kind.name}, not F32. "
            "Convert the model with a current llama.cpp."
        )
    with tensor.path.open("rb") as file:
        file.seek(tensor.offset)
        return tuple(np.frombuffer(file.read(tensor.num_bytes), "<f4").tolist())


# --- tokenizer ---------------------------------------------------------------------------------


def _tokenizer(fields: Fields) -> TokenizerData:
    own = Fields(fields.path, _under(fields.values, "tokenizer.ggml."))
    vocab = _vocab(own)
    size = len(vocab.tokens)
    return TokenizerData(
        tokenizer_json=None,
        vocab=vocab,
        chat_template=fields.text("tokenizer.chat_template", "") or None,
        bos_id=_token_id(own, "bos_token_id", size),
        eos_ids=_eos_ids(own, vocab),
        unk_id=_token_id(own, "unknown_token_id", size),
        pad_id=_token_id(own, "padding_token_id", size),
        add_bos=own.flag("add_bos_token", _adds_bos(vocab)),
        add_eos=own.flag("add_eos_token", False),
        named_templates=_named_templates(fields.values),
    )


def _under(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): values[key] for key in values if key.startswith(prefix)}


def _vocab(own: Fields) -> GGUFVocab:
    tokens = _array(own, "tokens", str)
    if not tokens:
        raise ModelFileError(
            f"{own.path} has no vocabulary (tokenizer.ggml.tokens). Use a file that has one."
        )
    types = _array(own, "token_type", int)
    if types and len(types) != len(tokens):
        raise ModelFileError(
            f"{own.path} is damaged: {len(types)} token types for {len(tokens)} tokens. "
            "Fetch the file again."
        )
    prefix = own.values.get("add_space_prefix")
    return GGUFVocab(
        model=own.text("model"),
        pre=own.text("pre", "") or None,
        tokens=tokens,
        token_types=types or (int(TokenType.NORMAL),) * len(tokens),
        merges=_array(own, "merges", str),
        scores=_array(own, "scores", float),
        add_space_prefix=prefix if isinstance(prefix, bool) else None,
    )


def _array(own: Fields, key: str, kind: type) -> tuple[Any, ...]:
    value = own.values.get(key, ())
    if isinstance(value, tuple) and (not value or isinstance(value[0], kind)):
        return value
    raise ModelFileError(
        f"{own.path} is damaged: tokenizer.ggml.{key} is no list of {kind.__name__}. "
        "Fetch the file again."
    )


def _token_id(own: Fields, key: str, size: int) -> int | None:
    """An id of the vocabulary; some converters write -1 or 2^32 - 1 for "none"."""
    value = own.optional_integer(key)
    return value if value is not None and 0 <= value < size else None


def _eos_ids(own: Fields, vocab: GGUFVocab) -> frozenset[int]:
    size = len(vocab.tokens)
    named = {_token_id(own, f"{name}_token_id", size) for name in ("eos", "eot", "eom")}
    listed = {value for value in _array(own, "eos_token_ids", int) if 0 <= value < size}
    by_text = {
        index
        for index, (text, kind) in enumerate(zip(vocab.tokens, vocab.token_types, strict=True))
        if kind == TokenType.CONTROL and text in _END_OF_TURN
    }
    return frozenset(value for value in named | listed | by_text if value is not None)


def _adds_bos(vocab: GGUFVocab) -> bool:
    return vocab.model == "llama" or vocab.pre in _BOS_PRE_TOKENIZERS


def _named_templates(values: Mapping[str, Any]) -> dict[str, str]:
    found = _under(values, "tokenizer.chat_template.")
    return {name: text for name, text in found.items() if isinstance(text, str)}


# --- defaults and labels -----------------------------------------------------------------------


def _sampling(metadata: Mapping[str, Any], vocab_size: int) -> dict[str, float | int]:
    found = {name: metadata[key] for key, name in _SAMPLING_KEYS.items() if key in metadata}
    # A float32 0.8 is 0.800000011920929; the shortest decimal is what its author wrote.
    decimal = {
        name: float(str(np.float32(value))) if isinstance(value, float) else value
        for name, value in found.items()
    }
    return sampling_defaults(decimal, vocab_size)


def _labels(parts: list[GGUFHeader], tensors: Mapping[str, GGUFTensor]) -> ModelLabels:
    fields = Fields(parts[0].path, parts[0].metadata)
    num_parameters = sum(
        tensor.num_elements for name, tensor in tensors.items() if name != _ROPE_FACTORS
    )
    return ModelLabels(
        name=fields.text("general.name", fields.path.stem),
        family=fields.text("general.architecture"),
        parameter_size=fields.text("general.size_label", size_label(num_parameters)),
        num_parameters=num_parameters,
        quantization=_quantization(fields, tensors),
        num_bytes=sum(part.path.stat().st_size for part in parts),
    )


def _quantization(fields: Fields, tensors: Mapping[str, GGUFTensor]) -> str:
    file_type = fields.optional_integer("general.file_type")
    known = {kind.value: kind.name for kind in LlamaFileType if kind != LlamaFileType.GUESSED}
    if file_type in known:
        return known[file_type].removeprefix("MOSTLY_").removeprefix("ALL_")
    weights: Counter[str] = Counter()
    for tensor in tensors.values():
        weights[tensor.kind.name] += tensor.num_elements
    return weights.most_common(1)[0][0]
