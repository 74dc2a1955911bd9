"""Small vocabularies of the kinds that model files carry, and their transformers twins."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from flm.types import GGUFVocab, TokenizerData

CORPUS = (
    "The quick brown fox jumps over the lazy dog. She said: I'm sure we'll know, they've tried.",
    "def total(numbers):\n    return sum(numbers)\n\nfor i in range(10):\n\tprint(i, 123456)",
    "Über die Brücke, où est la bibliothèque? 日本語 текст 👩‍👩‍👧 e\u0301",
    "user assistant system model",
    '{"name": "tool", "arguments": {"city": "Paris", "unit": "celsius"}} <tool_call> think end',
)
CHATML_MARKERS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LLAMA_MARKERS = ("<unk>", "<s>", "</s>", "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]")
DEFINED = ("<think>", "</think>", "<tool_call>", "</tool_call>")
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@cache
def byte_level_json(markers: tuple[str, ...] = CHATML_MARKERS, *, late: bool = False) -> str:
    """Byte-level BPE; ``late`` puts the control tokens behind the vocabulary, as Llama 3 does."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=late))
    split = pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[] if late else list(markers),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    if late:
        tokenizer.add_special_tokens(list(markers))
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in DEFINED])
    return tokenizer.to_str()


@cache
def sentencepiece_json(*, metaspace: bool = False, prefix: bool = True) -> str:
    """BPE with byte fallback in SentencePiece's manner: by normaliser or by Metaspace."""
    alphabet = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    prepend = [normalizers.Prepend("▁")] if prefix else []
    if metaspace:
        scheme = "first" if prefix else "never"
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=scheme, split=False)
    else:
        tokenizer.normalizer = normalizers.Sequence([*prepend, normalizers.Replace(" ", "▁")])
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    special = [*LLAMA_MARKERS, *alphabet]
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([*CORPUS, *" ".join(CORPUS).split()], trainer)
    document = tokenizer.to_str()
    return _without_byte_tokens(document, frozenset(alphabet))


def _without_byte_tokens(document: str, alphabet: frozenset[str]) -> str:
    """The byte tokens belong into the vocabulary only; the trainer lists them as special."""
    import json

    data = json.loads(document)
    data["added_tokens"] = [t for t in data["added_tokens"] if t["content"] not in alphabet]
    return json.dumps(data)


def token_id(document: str, text: str) -> int | None:
    """The id of a token by its text."""
    found: int | None = Tokenizer.from_str(document).token_to_id(text)
    return found


def data_of(
    document: str,
    *,
    bos: str | None = None,
    eos: str,
    add_bos: bool = False,
    chat_template: str | None = None,
) -> TokenizerData:
    """What a Hugging Face folder with this ``tokenizer.json`` says."""
    eos_id = token_id(document, eos)
    assert eos_id is not None
    return TokenizerData(
        tokenizer_json=document,
        vocab=None,
        chat_template=chat_template,
        bos_id=None if bos is None else token_id(document, bos),
        eos_ids=frozenset({eos_id}),
        unk_id=token_id(document, "<unk>"),
        pad_id=None,
        add_bos=add_bos,
        add_eos=False,
    )


def transformers_twin(document: str, **settings: Any) -> PreTrainedTokenizerFast:
    """The same vocabulary in transformers."""
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(document), **settings)


def gguf_data(
    tokens: Mapping[str, int],
    *,
    model: str = "gpt2",
    pre: str | None = "gpt-2",
    merges: tuple[str, ...] = (),
    scores: tuple[float, ...] = (),
    space: bool | None = None,
    bos_id: int | None = None,
    eos_ids: frozenset[int] = frozenset(),
    unk_id: int | None = None,
    add_bos: bool = False,
) -> TokenizerData:
    """A GGUF vocabulary from texts and their types."""
    vocab = GGUFVocab(
        model=model,
        pre=pre,
        tokens=tuple(tokens),
        token_types=tuple(tokens.values()),
        merges=merges,
        scores=scores,
        add_space_prefix=space,
    )
    return TokenizerData(
        tokenizer_json=None,
        vocab=vocab,
        chat_template=None,
        bos_id=bos_id,
        eos_ids=eos_ids,
        unk_id=unk_id,
        pad_id=None,
        add_bos=add_bos,
        add_eos=False,
    )
