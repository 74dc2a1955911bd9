"""Tiny models as GGUF files, written by the gguf library."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from tests.support.tiny_parts import (
    CHATML,
    ENDOFTEXT,
    HEADS,
    HIDDEN,
    IM_END,
    INTERMEDIATE,
    KV_HEADS,
    NUM_LAYERS,
    VOCAB_SIZE,
    Architecture,
    TinySpec,
    tiny_tensors,
    tiny_tokenizer_json,
)

_GGUF_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}


def gguf_name(name: str) -> str:
    """The llama.cpp name of a Hugging Face tensor name."""
    top = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in top:
        return top[name]
    _, _, index, rest = name.split(".", 3)
    return f"blk.{index}.{_GGUF_NAMES[rest]}"


def tiny_gguf(
    path: Path,
    architecture: Architecture = "llama",
    *,
    tied: bool = True,
    rope_scaling: Mapping[str, Any] | None = None,
    quantisation: str = "F32",
    seed: int = 0,
    max_context_len: int = 2048,
    vocab_size: int = VOCAB_SIZE,
    add_bos: bool = False,
    num_files: int = 1,
    extra: Mapping[str, float | int | str] | None = None,
) -> Path:
    """Write the weights and vocabulary of ``tiny_folder`` with the same arguments as GGUF.

    ``quantisation`` names a type of the gguf library (F32, F16, BF16, Q8_0, Q4_0, ...) for the
    matrices; vectors stay F32. With ``num_files`` above 1 the file is split as llama.cpp does
    and the path of the first part is returned. ``extra`` adds metadata keys.
    """
    spec = TinySpec(
        architecture,
        tied=tied,
        rope_scaling=rope_scaling,
        seed=seed,
        max_context_len=max_context_len,
        vocab_size=vocab_size,
    )
    writer = gguf.GGUFWriter(
        path,
        "llama" if architecture == "mistral" else architecture,
        split_max_tensors=0 if num_files == 1 else math.ceil(_num_tensors(spec) / num_files),
    )
    _add_metadata(writer, spec, quantisation)
    _add_vocabulary(writer, spec, add_bos)
    for key, value in ({} if extra is None else extra).items():
        _add_value(writer, key, value)
    for name, array in _gguf_arrays(spec).items():
        _add_tensor(writer, name, array, quantisation)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if num_files == 1:
        return path
    return path.with_name(f"{path.stem}-00001-of-{num_files:05d}.gguf")


def _num_tensors(spec: TinySpec) -> int:
    return len(_gguf_arrays(spec))


def _add_metadata(writer: gguf.GGUFWriter, spec: TinySpec, quantisation: str) -> None:
    writer.add_name("Tiny Random")
    writer.add_size_label("0.1M")
    writer.add_block_count(NUM_LAYERS)
    writer.add_context_length(spec.max_context_len)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    if spec.architecture == "qwen3":
        writer.add_key_length(spec.head_dim)
        writer.add_value_length(spec.head_dim)
    if spec.architecture in ("llama", "mistral"):
        writer.add_vocab_size(spec.vocab_size)
        writer.add_rope_dimension_count(spec.head_dim)
    file_types = {"F32": "ALL_F32"}
    file_type = file_types.get(quantisation, f"MOSTLY_{quantisation}")
    writer.add_file_type(gguf.LlamaFileType[file_type])
    _add_rope_scaling(writer, spec.rope_scaling)


def _add_rope_scaling(writer: gguf.GGUFWriter, scaling: Mapping[str, Any] | None) -> None:
    if scaling is None or scaling["rope_type"] == "llama3":
        return
    writer.add_rope_scaling_type(gguf.RopeScalingType(scaling["rope_type"]))
    writer.add_rope_scaling_factor(scaling["factor"])
    if "original_max_position_embeddings" in scaling:
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])


def _add_vocabulary(writer: gguf.GGUFWriter, spec: TinySpec, add_bos: bool) -> None:
    data = json.loads(tiny_tokenizer_json())
    tokens = [f"[PAD{index}]" for index in range(spec.vocab_size)]
    types = [gguf.TokenType.UNUSED] * spec.vocab_size
    for text, index in data["model"]["vocab"].items():
        tokens[index], types[index] = text, gguf.TokenType.NORMAL
    for entry in data["added_tokens"]:
        kind = gguf.TokenType.CONTROL if entry["special"] else gguf.TokenType.USER_DEFINED
        tokens[entry["id"]], types[entry["id"]] = entry["content"], kind
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) for pair in data["model"]["merges"]])
    writer.add_bos_token_id(ENDOFTEXT)
    writer.add_eos_token_id(IM_END)
    writer.add_pad_token_id(ENDOFTEXT)
    writer.add_add_bos_token(add_bos)
    writer.add_chat_template(CHATML)


def _add_value(writer: gguf.GGUFWriter, key: str, value: float | int | str) -> None:
    adders = {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32}
    adders[type(value)](key, value)


def _gguf_arrays(spec: TinySpec) -> dict[str, np.ndarray]:
    arrays = {}
    for name, tensor in tiny_tensors(spec).items():
        if spec.architecture in ("llama", "mistral"):
            if "q_proj" in name:
                tensor = _interleaved(tensor, HEADS)
            if "k_proj" in name:
                tensor = _interleaved(tensor, KV_HEADS)
        arrays[gguf_name(name)] = tensor.contiguous().numpy()
    if spec.rope_scaling is not None and spec.rope_scaling["rope_type"] == "llama3":
        arrays["rope_freqs.weight"] = _llama3_factors(spec.head_dim, spec.rope_scaling)
    return arrays


def _interleaved(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """llama.cpp stores the rows of Q and K of the Llama architecture with the rotated pairs
    side by side instead of half a head apart."""
    rows, columns = weight.shape
    halves = weight.view(num_heads, 2, rows // num_heads // 2, columns)
    return halves.transpose(1, 2).reshape(rows, columns)


def _llama3_factors(head_dim: int, scaling: Mapping[str, Any]) -> np.ndarray:
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    original = scaling["original_max_position_embeddings"]
    factors = []
    for index in range(0, head_dim, 2):
        wavelength = 2 * math.pi * 10000.0 ** (index / head_dim)
        smooth = min(max((original / wavelength - low) / (high - low), 0.0), 1.0)
        factors.append(1.0 / ((1.0 - smooth) / scaling["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


def _add_tensor(writer: gguf.GGUFWriter, name: str, array: np.ndarray, quantisation: str) -> None:
    if array.ndim == 1 or quantisation == "F32":
        writer.add_tensor(name, array)
        return
    kind = gguf.GGMLQuantizationType[quantisation]
    writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
