"""The pre-tokenisers that ``tokenizer.ggml.pre`` names, built with the tokenizers library.

The name says how the vocabulary's merges were learned: where text is cut before any merge. The
names are those that llama.cpp's converter writes; the cuts are those of the models' own
``tokenizer.json`` files.
"""

from dataclasses import dataclass
from typing import Any

from tokenizers import Regex, pre_tokenizers

from flm.log import logger

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LLAMA3 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_TAIL}"
_QWEN2 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}|{_SYMBOLS}|{_TAIL}"
_QWEN35 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_TAIL}"
)
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_PATHS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = rf"{_LEAD}{_UPPER}*{_LOWER}+|{_LEAD}{_UPPER}+{_LOWER}*|\p{{N}}|{_PATHS}|{_TAIL}"
_GPT4O = (
    rf"{_LEAD}{_UPPER}*{_LOWER}+{_CONTRACTION}?|{_LEAD}{_UPPER}+{_LOWER}*{_CONTRACTION}?"
    rf"|\p{{N}}{{1,3}}|{_PATHS}|{_TAIL}"
)
_SEED = rf"{_CONTRACTION}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_TAIL}"
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
_DEEPSEEK3_WORD = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_TAIL}"
)
_CJK = r"[一-龥぀-ゟ゠-ヿ]+"
_CJK_OR_HANGUL = r"[一-龥ࠀ-一가-퟿]+"
_CASED_LETTER = r"[\p{Lu}\p{Ll}\p{Lt}]"
_FULLWIDTH_PUNCTUATION = r"\s?[!-/:-~！-／：-～‘-‟　-。]+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """Cuts applied one after the other; ``ignore_merges``: a whole piece in the vocabulary is
    taken without asking the merges."""

    cuts: tuple[str, ...]
    ignore_merges: bool = False

    def build(self) -> Any:
        """The tokenizers pre-tokeniser: the cuts, then bytes as characters."""
        steps = [pre_tokenizers.Split(Regex(cut), behavior="isolated") for cut in self.cuts]
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([*steps, byte_level])


_LLAMA3_CUT = PreTokenizer((_LLAMA3,), ignore_merges=True)
_LLAMA3_MERGED = PreTokenizer((_LLAMA3,))
_GPT2_CUT = PreTokenizer((_GPT2,))
_QWEN2_CUT = PreTokenizer((_QWEN2,))
_DIGITS_CUT = PreTokenizer((r"\p{N}", _GPT2))
_GPT4O_CUT = PreTokenizer((_GPT4O,))
_DEEPSEEK3_CUT = PreTokenizer((r"\p{N}{1,3}", _CJK, _DEEPSEEK3_WORD))
_DEFAULT_CUT = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"))

_BY_NAME: dict[str, PreTokenizer] = {
    "default": _DEFAULT_CUT,
    **dict.fromkeys(
        (
            "llama3",
            "llama-v3",
            "llama-bpe",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ),
        _LLAMA3_CUT,
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), _LLAMA3_MERGED),
    **dict.fromkeys(
        (
            "gpt-2",
            "phi-2",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "mpt",
            "olmo",
            "jais",
            "exaone4",
            "trillion",
            "granite-docling",
            "modern-bert",
        ),
        _GPT2_CUT,
    ),
    **dict.fromkeys(
        (
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ),
        _QWEN2_CUT,
    ),
    "qwen35": PreTokenizer((_QWEN35,)),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
        _DIGITS_CUT,
    ),
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), _GPT4O_CUT),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm"), _DEEPSEEK3_CUT),
    "deepseek-llm": PreTokenizer(
        (
            "[\r\n]",
            rf"\s?{_CASED_LETTER}+",
            _FULLWIDTH_PUNCTUATION,
            r"\s+$",
            _CJK_OR_HANGUL,
            r"\p{N}+",
        )
    ),
    "deepseek-coder": PreTokenizer(
        ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK_OR_HANGUL, r"\p{N}")
    ),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    **dict.fromkeys(("poro-chat", "bloom", "gpt3-finnish"), PreTokenizer((_BLOOM,))),
    "viking": PreTokenizer((_BLOOM, r"\p{N}")),
    "seed-coder": PreTokenizer((_SEED,)),
}


def pre_tokenizer(name: str | None) -> PreTokenizer:
    """The pre-tokeniser of that name; an unknown one is logged and read as the default."""
    if name is None:
        logger.warning("The model file names no pre-tokeniser; reading it as 'default'.")
        return _DEFAULT_CUT
    known = _BY_NAME.get(name)
    if known is None:
        logger.warning(
            "Unknown pre-tokeniser %r: text is cut as 'default' does, which may cost quality. "
            "A Hugging Face folder of the same model carries the exact rules.",
            name,
        )
        return _DEFAULT_CUT
    return known
