"""The real model against transformers, both in float32 from the same GGUF file."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from flm.models.registry import CausalLM
from tests.parity.forward import Cached, greedy, load, logits_of

pytestmark = pytest.mark.real

NUM_TOKENS = 48
STORY = (
    "The lighthouse keeper wrote down the weather every morning, and every evening he read what "
    "he had written and found that he did not believe it. {n} ships had passed that day. "
)
CODE = '''import math


def is_prime(number: int) -> bool:
    """Return whether number is prime."""
    if'''
# Among these prompts the best two tokens are never nearer than 0.004 in 48 steps, forty times what
# two correct float32 computations differ by; in a closer race either winner would be right.
RAW = {
    "raw": "The three most important inventions of the nineteenth century were",
    "unicode": "Grüße aus Köln! Ça va? 日本語のテキスト, текст на русском, 😀👩‍👩‍👧 and then",
    "code": CODE,
    "json": '{"name": "Ada", "born": 1815, "known_for": ["',
    "one token": "The",
    "white space": "\n\n\t  1.  \n\n   2.",
    "long": "".join(STORY.format(n=n) for n in range(56)),
}
CHATS: dict[str, list[dict[str, str]]] = {
    "chat": [{"role": "user", "content": "What is the capital of France, and what is it like?"}],
    "chat with system": [
        {"role": "system", "content": "You answer in rhymes."},
        {"role": "user", "content": "Tell me about the sea."},
    ],
    "chat of many turns": [
        {"role": "user", "content": "My name is Mira."},
        {"role": "assistant", "content": "Nice to meet you, Mira!"},
        {"role": "user", "content": "What is my name? Then count to ten."},
    ],
}
QUICK = ("chat", "unicode", "code")
NAMES = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in (*RAW, *CHATS)
]


class Pair(NamedTuple):
    ours: CausalLM
    theirs: Any
    tokenizer: Any

    def ids(self, name: str) -> list[int]:
        if name in RAW:
            return list(self.tokenizer(RAW[name])["input_ids"])
        return list(
            self.tokenizer.apply_chat_template(
                CHATS[name], add_generation_prompt=True, return_dict=True
            )["input_ids"]
        )


@pytest.fixture(scope="module")
def pair(smollm2_gguf: Path) -> Pair:
    folder, name = smollm2_gguf.parent, smollm2_gguf.name
    theirs = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    theirs.generation_config.eos_token_id = None
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    return Pair(load(smollm2_gguf), theirs.eval(), tokenizer)


def reference_greedy(model: Any, ids: list[int]) -> list[int]:
    """What transformers generates, past any end token."""
    prompt = torch.tensor([ids])
    out = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=False,
        max_new_tokens=NUM_TOKENS,
        pad_token_id=0,
    )
    tokens: list[int] = out[0, len(ids) :].tolist()
    assert len(tokens) == NUM_TOKENS
    return tokens


@pytest.mark.parametrize("name", NAMES)
def test_the_same_48_greedy_tokens(pair: Pair, name: str) -> None:
    ids = pair.ids(name)
    if name == "long":
        assert len(ids) > 2000
    assert greedy(pair.ours, ids, NUM_TOKENS) == reference_greedy(pair.theirs, ids)


def test_the_same_logits(pair: Pair) -> None:
    ids = pair.ids("unicode") + pair.ids("chat")
    with torch.inference_mode():
        wanted: Tensor = pair.theirs(torch.tensor([ids])).logits[0]
    assert (logits_of(pair.ours, ids) - wanted).abs().max() < 2e-3
    assert (logits_of(pair.ours, ids, cuts=(1, 40)) - wanted).abs().max() < 2e-3


@pytest.mark.parametrize("with_kernels", [True, False], ids=["kernels", "plain"])
@torch.inference_mode()
def test_exact_is_exact(pair: Pair, smollm2_gguf: Path, with_kernels: bool) -> None:
    """Bit for bit the same logits, however the prompt is cut and whoever decodes beside it."""
    ours = pair.ours if with_kernels else load(smollm2_gguf, with_kernels=False)
    ids = pair.ids("long")[:640]
    whole = logits_of(ours, ids)
    for cuts in ((512,), (1, 8, 41, 300), (639,)):
        assert torch.equal(logits_of(ours, ids, cuts), whole)
    company = Cached(ours, max_len=len(ids), num_sequences=3)
    lengths = (3, 200, 600)
    for number, length in enumerate(lengths):
        company.chunk(ids[:length], number)
    for step in range(2):
        logits = company.decode([ids[length + step] for length in lengths])
        assert torch.equal(logits, whole[[length + step for length in lengths]])
