"""A Hugging Face folder to ModelFiles."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from flm.models.config import MAX_SIZE, Fields
from flm.models.hf_config import read_hf_config
from flm.models.hf_tokenizer import read_hf_tokenizer
from flm.models.json_file import read_object, read_object_if_there
from flm.models.model_files import ModelFiles, ModelLabels, sampling_defaults, size_label
from flm.models.safetensors_header import SafetensorsTensor, read_safetensors_index

_SAMPLING_KEYS: Final = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def open_folder(folder: Path) -> ModelFiles:
    """Open the model in ``folder``.

    Raises ModelFileError for a missing or damaged file or an unsupported model.
    """
    values = read_object(folder / "config.json")
    config = read_hf_config(values, folder / "config.json")
    generation = read_object_if_there(folder / "generation_config.json")
    tensors = read_safetensors_index(folder)
    return ModelFiles(
        path=folder,
        config=config,
        tokenizer=read_hf_tokenizer(folder, _eos_ids(values) | _eos_ids(generation)),
        sampling=sampling_defaults(_sampling(generation), config.vocab_size),
        labels=_labels(folder, Fields(folder / "config.json", values), tensors),
        safetensors_tensors=tensors,
    )


def _eos_ids(values: Mapping[str, Any]) -> frozenset[int]:
    """``eos_token_id``: a number, a list of them, or null."""
    found = values.get("eos_token_id")
    listed = found if isinstance(found, list) else [found]
    return frozenset(
        value
        for value in listed
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_SIZE
    )


def _sampling(generation: Mapping[str, Any]) -> dict[str, Any]:
    """An explicit ``do_sample: false`` is the authors' wish for greedy decoding. transformers
    also takes a missing one so, but there it only means that nobody thought about it."""
    found = {key: generation[key] for key in _SAMPLING_KEYS if generation.get(key) is not None}
    if generation.get("do_sample") is False:
        found["temperature"] = 0.0
    return found


def _labels(folder: Path, fields: Fields, tensors: Mapping[str, SafetensorsTensor]) -> ModelLabels:
    sizes: Counter[str] = Counter()
    for tensor in tensors.values():
        sizes[tensor.dtype] += tensor.num_elements
    num_parameters = sum(sizes.values())
    dtype = sizes.most_common(1)[0][0] if sizes else "F32"
    paths = {tensor.path for tensor in tensors.values()}
    return ModelLabels(
        name=folder.resolve().name,
        family=fields.text("model_type"),
        parameter_size=size_label(num_parameters),
        num_parameters=num_parameters,
        quantization=dtype,
        num_bytes=sum(path.stat().st_size for path in paths),
    )
