"""Tiny random models on disk: the same weights and vocabulary as a Hugging Face folder or a GGUF.

Two layers, hidden size 64, grouped heads, a byte-level BPE vocabulary with the ChatML markers.
Made without transformers, so that importing this stays quick; tests/parity/ loads the folders
with transformers and so proves that they are what they claim.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.support.tiny_gguf import tiny_gguf
from tests.support.tiny_parts import (
    CHATML,
    ENDOFTEXT,
    HEADS,
    HIDDEN,
    IM_END,
    IM_START,
    INTERMEDIATE,
    KV_HEADS,
    LINEAR_SCALING,
    LLAMA3_SCALING,
    NUM_LAYERS,
    VOCAB_SIZE,
    YARN_SCALING,
    Architecture,
    TinySpec,
    tiny_tensors,
    tiny_tokenizer,
    tiny_tokenizer_json,
)

__all__ = [
    "CHATML",
    "ENDOFTEXT",
    "HEADS",
    "HIDDEN",
    "IM_END",
    "IM_START",
    "INTERMEDIATE",
    "KV_HEADS",
    "LINEAR_SCALING",
    "LLAMA3_SCALING",
    "NUM_LAYERS",
    "VOCAB_SIZE",
    "YARN_SCALING",
    "Architecture",
    "TinySpec",
    "tiny_config",
    "tiny_folder",
    "tiny_gguf",
    "tiny_tensors",
    "tiny_tokenizer",
    "tiny_tokenizer_json",
]


def tiny_config(spec: TinySpec, *, old_style: bool = False) -> dict[str, Any]:
    """``config.json``; ``old_style`` writes rope_theta and rope_scaling as transformers 4 did."""
    class_name = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    config: dict[str, Any] = {
        "architectures": [f"{class_name[spec.architecture]}ForCausalLM"],
        "model_type": spec.architecture,
        "vocab_size": spec.vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": spec.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": spec.max_context_len,
        "tie_word_embeddings": spec.tied,
        "bos_token_id": ENDOFTEXT,
        "eos_token_id": IM_END,
        "torch_dtype" if old_style else "dtype": "float32",
    }
    if spec.architecture == "mistral":
        config["sliding_window"] = None
    if old_style:
        config["rope_theta"] = 10000.0
        config["rope_scaling"] = None if spec.rope_scaling is None else dict(spec.rope_scaling)
    else:
        scaling = {"rope_type": "default"} if spec.rope_scaling is None else spec.rope_scaling
        config["rope_parameters"] = {"rope_theta": 10000.0, **scaling}
    return config | dict(spec.overrides)


def tiny_folder(
    path: Path,
    architecture: Architecture = "llama",
    *,
    tied: bool = True,
    rope_scaling: Mapping[str, Any] | None = None,
    sharded: bool = False,
    seed: int = 0,
    max_context_len: int = 2048,
    vocab_size: int = VOCAB_SIZE,
    with_tokenizer: bool = True,
    add_bos: bool = False,
    old_style: bool = False,
    head_dim: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    generation_config: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model folder and return it. ``overrides`` are merged into config.json as they are."""
    path.mkdir(parents=True, exist_ok=True)
    spec = TinySpec(
        architecture,
        tied=tied,
        rope_scaling=rope_scaling,
        seed=seed,
        max_context_len=max_context_len,
        vocab_size=vocab_size,
        asked_head_dim=head_dim,
        overrides={} if overrides is None else overrides,
    )
    _write_json(path / "config.json", tiny_config(spec, old_style=old_style))
    if generation_config is None:
        generation_config = {"bos_token_id": ENDOFTEXT, "eos_token_id": [IM_END, ENDOFTEXT]}
    _write_json(path / "generation_config.json", dict(generation_config))
    _write_weights(path, tiny_tensors(spec), sharded=sharded)
    if with_tokenizer:
        (path / "tokenizer.json").write_text(tiny_tokenizer_json(), encoding="utf-8")
        _write_json(path / "tokenizer_config.json", _tokenizer_config(add_bos))
    return path


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")


def _write_weights(path: Path, tensors: dict[str, torch.Tensor], *, sharded: bool) -> None:
    if not sharded:
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        return
    names = sorted(tensors)
    halves = (names[: len(names) // 2], names[len(names) // 2 :])
    weight_map = {}
    for number, half in enumerate(halves, start=1):
        shard = f"model-{number:05d}-of-00002.safetensors"
        save_file({name: tensors[name] for name in half}, path / shard, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(half, shard)
    _write_json(path / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})


def _tokenizer_config(add_bos: bool) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "add_bos_token": add_bos,
        "chat_template": CHATML,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 2048,
    }
