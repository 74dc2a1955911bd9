"""The internal names of tensors and what the file formats call them."""

from collections.abc import Mapping
from typing import Final

_HF: Final[Mapping[str, str]] = {
    "embedding": "model.embed_tokens",
    "norm": "model.norm",
    "head": "lm_head",
}
_HF_LAYER: Final[Mapping[str, str]] = {
    "attention_norm": "input_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "output": "self_attn.o_proj",
    "query_norm": "self_attn.q_norm",
    "key_norm": "self_attn.k_norm",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
_GGUF: Final[Mapping[str, str]] = {
    "embedding": "token_embd",
    "norm": "output_norm",
    "head": "output",
}
_GGUF_LAYER: Final[Mapping[str, str]] = {
    "attention_norm": "attn_norm",
    "query": "attn_q",
    "key": "attn_k",
    "value": "attn_v",
    "output": "attn_output",
    "query_norm": "attn_q_norm",
    "key_norm": "attn_k_norm",
    "mlp_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}


def hf_name(name: str) -> str:
    """``layers.3.query.weight`` to ``model.layers.3.self_attn.q_proj.weight``."""
    part, kind = name.rsplit(".", 1)
    if part in _HF:
        return f"{_HF[part]}.{kind}"
    _, index, part = part.split(".")
    return f"model.layers.{index}.{_HF_LAYER[part]}.{kind}"


def gguf_name(name: str) -> str:
    """``layers.3.query.weight`` to ``blk.3.attn_q.weight``."""
    part, kind = name.rsplit(".", 1)
    if part in _GGUF:
        return f"{_GGUF[part]}.{kind}"
    _, index, part = part.split(".")
    return f"blk.{index}.{_GGUF_LAYER[part]}.{kind}"
