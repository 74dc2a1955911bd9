import logging

import pytest
from tokenizers import Regex, pre_tokenizers
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from flm.text.bytelevel import to_bytes
from flm.text.pretokenizers import pre_tokenizer
from tests.text.samples import TEXTS

KNOWN_TO_TRANSFORMERS = sorted(GGUF_PRE_TOKENIZER_SPLITS)


def _cuts(name: str, text: str) -> list[str]:
    return [piece for piece, _ in pre_tokenizer(name).build().pre_tokenize_str(text)]


@pytest.mark.parametrize("name", KNOWN_TO_TRANSFORMERS)
def test_the_cuts_are_those_of_transformers(name: str) -> None:
    split = pre_tokenizers.Split(Regex(GGUF_PRE_TOKENIZER_SPLITS[name]), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    oracle = pre_tokenizers.Sequence([split, byte_level])
    for text in TEXTS:
        assert _cuts(name, text) == [piece for piece, _ in oracle.pre_tokenize_str(text)], text


def test_gpt2_is_the_librarys_own() -> None:
    oracle = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    for text in TEXTS:
        assert _cuts("gpt-2", text) == [piece for piece, _ in oracle.pre_tokenize_str(text)]


def test_smollm_takes_digits_apart() -> None:
    digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    oracle = pre_tokenizers.Sequence([digits, byte_level])
    for text in TEXTS:
        assert _cuts("smollm", text) == [piece for piece, _ in oracle.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("name", "text", "cuts"),
    [
        ("deepseek-v3", "ab 1234漢字!x", ["ab", " ", "123", "4", "漢字", "!x"]),
        ("deepseek-llm", "ab 12345", ["ab", " ", "12345"]),
        ("default", "a1234!", ["a", "123", "4", "!"]),
        ("falcon", "a 1234", ["a", " ", "123", "4"]),
        ("seed-coder", "a!\nb", ["a", "!", "\n", "b"]),
        ("qwen2", "कि", ["क", "ि"]),
        ("qwen35", "कि", ["कि"]),
    ],
)
def test_other_cuts(name: str, text: str, cuts: list[str]) -> None:
    assert [to_bytes(piece).decode() for piece in _cuts(name, text)] == cuts


@pytest.mark.parametrize("name", ["deepseek-coder", "deepseek-llm", "viking", "bloom", "tekken"])
def test_every_cut_loses_nothing(name: str) -> None:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for text in TEXTS[1:]:
        whole = "".join(piece for piece, _ in byte_level.pre_tokenize_str(text))
        assert "".join(_cuts(name, text)) == whole


@pytest.mark.parametrize("name", ["not-a-name", None])
def test_an_unknown_one_is_named_and_read_as_the_default(
    name: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="flm"):
        assert pre_tokenizer(name) == pre_tokenizer("default")
    assert len(caplog.records) == 1
    assert "default" in caplog.text
    assert name is None or name in caplog.text
