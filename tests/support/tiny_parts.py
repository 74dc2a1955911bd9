"""What tiny models are made of: the shape, the vocabulary, the random weights."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

Architecture = Literal["llama", "mistral", "qwen2", "qwen3"]

ENDOFTEXT, IM_START, IM_END = 0, 1, 2
NUM_LAYERS, HIDDEN, INTERMEDIATE, HEADS, KV_HEADS = 2, 64, 128, 4, 2
VOCAB_SIZE = 512

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

LLAMA3_SCALING: dict[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
LINEAR_SCALING: dict[str, Any] = {"rope_type": "linear", "factor": 4.0}
YARN_SCALING: dict[str, Any] = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 512,
}

_CORPUS = """
The quick brown fox jumps over the lazy dog while the other dogs look on and wonder whether there
is anything they would rather be doing. Once upon a time there was a small model that could not
say very much, but what it said it said the same way every time it was asked. Write a function
that returns the sum of the numbers in the list: def total(numbers): return sum(numbers). What is
the capital of France? The capital of France is Paris. She said, "I'm not sure we'll ever know,
but they've tried." In the beginning the user asked a question and the assistant gave an answer;
in the end the assistant asked a question and the user gave an answer. for i in range(10): print(i)
if the value is None, then raise an error with a message that says what to do about it. Über die
Brücke ging das Mädchen, où est la bibliothèque, el niño comió una manzana. The weather today is
sunny with a chance of rain in the afternoon and thunder through the night. {"name": "tool",
"arguments": {"city": "Paris", "unit": "celsius"}} The end of the story is the start of another.
"""


@dataclass(frozen=True, slots=True)
class TinySpec:
    """Everything that decides the weights and the configuration of a tiny model."""

    architecture: Architecture = "llama"
    tied: bool = True
    rope_scaling: Mapping[str, Any] | None = None
    seed: int = 0
    max_context_len: int = 2048
    vocab_size: int = VOCAB_SIZE
    asked_head_dim: int | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def head_dim(self) -> int:
        """Qwen3 heads are wider than hidden / heads, as in the real ones."""
        if self.asked_head_dim is not None:
            return self.asked_head_dim
        return 32 if self.architecture == "qwen3" else HIDDEN // HEADS


# --- the vocabulary ------------------------------------------------------------------------------


@cache
def tiny_tokenizer_json() -> str:
    """``tokenizer.json`` of the 512-token vocabulary: three control tokens first, the merges,
    ``<think>`` and ``</think>`` (user-defined, not control) last."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - 2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator([_CORPUS], trainer)
    think = [AddedToken(text, special=False, normalized=False) for text in ("<think>", "</think>")]
    tokenizer.add_tokens(think)
    assert tokenizer.get_vocab_size() == VOCAB_SIZE
    return tokenizer.to_str()


def tiny_tokenizer() -> Tokenizer:
    """The vocabulary as an object of the tokenizers library."""
    return Tokenizer.from_str(tiny_tokenizer_json())


# --- the weights ---------------------------------------------------------------------------------


def tiny_tensors(spec: TinySpec) -> dict[str, torch.Tensor]:
    """Random float32 weights under their Hugging Face names. Biases and norms are not neutral."""
    generator = torch.Generator().manual_seed(spec.seed)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * (1.5 / math.sqrt(columns))

    def vector(size: int, around: float) -> torch.Tensor:
        return around + 0.1 * torch.randn(size, generator=generator)

    query, key = HEADS * spec.head_dim, KV_HEADS * spec.head_dim
    tensors = {
        "model.embed_tokens.weight": torch.randn(spec.vocab_size, HIDDEN, generator=generator)
    }
    for index in range(NUM_LAYERS):
        layer = f"model.layers.{index}"
        tensors |= {
            f"{layer}.input_layernorm.weight": vector(HIDDEN, 1.0),
            f"{layer}.self_attn.q_proj.weight": matrix(query, HIDDEN),
            f"{layer}.self_attn.k_proj.weight": matrix(key, HIDDEN),
            f"{layer}.self_attn.v_proj.weight": matrix(key, HIDDEN),
            f"{layer}.self_attn.o_proj.weight": matrix(HIDDEN, query),
            f"{layer}.post_attention_layernorm.weight": vector(HIDDEN, 1.0),
            f"{layer}.mlp.gate_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            f"{layer}.mlp.up_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            f"{layer}.mlp.down_proj.weight": matrix(HIDDEN, INTERMEDIATE),
        }
        if spec.architecture == "qwen2":
            sizes = {"q_proj": query, "k_proj": key, "v_proj": key}
            for name, size in sizes.items():
                tensors[f"{layer}.self_attn.{name}.bias"] = vector(size, 0.0)
        if spec.architecture == "qwen3":
            for name in ("q_norm", "k_norm"):
                tensors[f"{layer}.self_attn.{name}.weight"] = vector(spec.head_dim, 1.0)
    tensors["model.norm.weight"] = vector(HIDDEN, 1.0)
    if not spec.tied:
        tensors["lm_head.weight"] = matrix(spec.vocab_size, HIDDEN)
    return tensors
