"""The bound on the number of tokens holds for every text, and is there where it can be."""

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.text.bound import NFC_SHRINK, TextBound
from flm.text.tokenizer import Tokenizer
from tests.support.vocabularies import (
    CORPUS,
    byte_level_json,
    data_of,
    sentencepiece_json,
)


def tokenizer_of(document: str, *, eos: str = "<|im_end|>", **changes: Any) -> Tokenizer:
    changed = json.loads(document) | changes
    return Tokenizer.from_data(data_of(json.dumps(changed), eos=eos))


NFC = {"type": "NFC"}
TOKENIZERS = {
    "byte level": tokenizer_of(byte_level_json()),
    "composed": tokenizer_of(byte_level_json(), normalizer=NFC),
    "sentencepiece": tokenizer_of(sentencepiece_json(), eos="</s>"),
    "metaspace": tokenizer_of(sentencepiece_json(metaspace=True), eos="</s>"),
}
texts = st.one_of(
    st.text(max_size=60),
    st.text("ae\u0301\u0308\u1fbe\u0344\u212a <|im_end|>", max_size=60),
    st.sampled_from([*CORPUS, " " * 500, "a" * 500, "<|im_end|>" * 20, "\u212a" * 50, "\x04" * 90]),
    st.lists(st.sampled_from(["token", "\n", "  ", "<tool_call>", "Paris"]), max_size=40).map(
        "".join
    ),
)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=texts)
def test_no_text_has_fewer_tokens_than_the_bound(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    for control in (False, True):
        assert tokenizer.min_tokens(text) <= len(tokenizer.encode(text, control=control))


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_long_text_is_known_to_be_long(name: str) -> None:
    assert TOKENIZERS[name].min_tokens("word " * 100_000) > 1000


def _without(document: str, letter: str) -> dict[str, Any]:
    model = json.loads(document)["model"]
    model["vocab"] = {text: i for text, i in model["vocab"].items() if letter not in text}
    model["merges"] = []
    return {"model": model}


@pytest.mark.parametrize(
    "changes",
    [
        {"normalizer": {"type": "Lowercase"}},
        {"normalizer": {"type": "NFKC"}},
        {"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": ""}},
        {
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"Regex": " "},
                "behavior": "Removed",
                "invert": False,
            }
        },
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"pre_tokenizer": None},
        _without(byte_level_json(), "a"),
    ],
)
def test_there_is_none_where_text_may_vanish(changes: dict[str, Any]) -> None:
    assert tokenizer_of(byte_level_json(), **changes).min_tokens("a" * 10**6) == 0


def test_there_is_none_for_tokens_that_take_white_space_with_them() -> None:
    document = json.loads(byte_level_json())
    document["added_tokens"][0]["lstrip"] = True
    assert (
        Tokenizer.from_data(data_of(json.dumps(document), eos="<|im_end|>")).min_tokens("a" * 10**6)
        == 0
    )


def test_bytes_that_a_vocabulary_lacks_do_not_count() -> None:
    # U+0104 stands for the byte 4 in a byte-level vocabulary.
    tokenizer = tokenizer_of(byte_level_json(), **_without(byte_level_json(), "\u0104"))
    assert tokenizer.encode("\x04" * 1000) == []
    assert tokenizer.min_tokens("\x04" * 1000) == 0
    assert tokenizer.min_tokens("a" * 1000) > 0
    assert TextBound(10, b"x").min_tokens("xaxax" * 50) == 10


def test_composing_never_shrinks_a_text_more_than_that() -> None:
    """Of every composed character, its decomposition in the longest spelling of each part."""
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    longest: dict[str, int] = {}
    for char in every:
        apart = unicodedata.normalize("NFD", char)
        if len(apart) == 1:
            longest[apart] = max(longest.get(apart, 0), len(char.encode()))
    worst = 0.0
    for char in every:
        spelled = sum(longest[part] for part in unicodedata.normalize("NFD", char))
        assert len(char.encode()) <= spelled
        if unicodedata.normalize("NFC", char) == char:
            worst = max(worst, spelled / len(char.encode()))
    assert 3 < worst <= NFC_SHRINK
