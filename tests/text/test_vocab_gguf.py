import json

import pytest
from hypothesis import given
from tokenizers import Tokenizer as Backend

from flm.errors import ModelFileError
from flm.text.tokenizer import Tokenizer
from flm.text.vocab_gguf import byte_piece
from flm.types import TokenizerData
from tests.support.vocabularies import (
    DEFINED,
    LLAMA_MARKERS,
    byte_level_json,
    gguf_data,
    sentencepiece_json,
    transformers_twin,
)
from tests.text.samples import TEXTS, hostile_text

NORMAL, UNKNOWN, CONTROL, DEFINED_TYPE, UNUSED, BYTE = range(1, 7)


def _types(document: str) -> dict[str, int]:
    """Token texts in the order of their ids with the types a converter would write."""
    data = json.loads(document)
    special = {token["content"] for token in data["added_tokens"] if token["special"]}
    vocab = Backend.from_str(document).get_vocab()
    types = {}
    for text in sorted(vocab, key=vocab.__getitem__):
        is_byte = len(text) == 6 and text.startswith("<0x")
        kind = CONTROL if text in special else DEFINED_TYPE if text in DEFINED else NORMAL
        types[text] = BYTE if is_byte else kind
    return types


def _merges(document: str) -> tuple[str, ...]:
    return tuple(" ".join(pair) for pair in json.loads(document)["model"]["merges"])


def _byte_level(*, pre: str) -> TokenizerData:
    document = byte_level_json()
    return gguf_data(_types(document), pre=pre, merges=_merges(document))


def _llama(*, space: bool | None) -> TokenizerData:
    """The tokens of a scored vocabulary in the order in which they were learned, no merges."""
    types = _types(sentencepiece_json(prefix=space is not False)) | {"<unk>": UNKNOWN}
    scores = tuple(-float(i) for i in range(len(types)))
    return gguf_data(types, model="llama", pre=None, scores=scores, space=space, unk_id=0)


# --- byte level --------------------------------------------------------------------------------

BYTE_LEVEL = Tokenizer.from_data(_byte_level(pre="dbrx"))
BYTE_LEVEL_TWIN = transformers_twin(byte_level_json())


@pytest.mark.parametrize("text", TEXTS)
def test_a_gguf_and_a_folder_give_the_same_ids(text: str) -> None:
    ids = BYTE_LEVEL.encode(text)
    assert ids == BYTE_LEVEL_TWIN.encode(text, add_special_tokens=False)
    assert BYTE_LEVEL.decode(ids) == text


@given(text=hostile_text)
def test_control_tokens_come_from_markers_only(text: str) -> None:
    assert BYTE_LEVEL.encode(text, control=True) == BYTE_LEVEL_TWIN.encode(text)
    assert not BYTE_LEVEL.control_ids & set(BYTE_LEVEL.encode(text))


def test_user_defined_tokens_are_literal() -> None:
    (think,) = BYTE_LEVEL.encode("<think>")
    assert BYTE_LEVEL.token_bytes(think) == b"<think>"
    assert not BYTE_LEVEL.is_control(think)


def test_a_turn_end_of_an_ordinary_type_is_still_control() -> None:
    types = {**dict.fromkeys("abc<|>", NORMAL), "<|end|>": NORMAL}
    data = gguf_data(types, eos_ids=frozenset({6}))
    tokenizer = Tokenizer.from_data(data)
    assert tokenizer.control_ids == {6}
    assert tokenizer.encode("a<|end|>", control=True) == [0, 6]
    assert 6 not in tokenizer.encode("a<|end|>")


def test_double_tokens_and_unknown_merges_are_survived() -> None:
    types = {"a": NORMAL, "b": NORMAL, "ab": NORMAL, "<x>": CONTROL}
    data = gguf_data(types, merges=("a b", "b zz", "a a", "nonsense", ""))
    assert Tokenizer.from_data(data).encode("abab") == [2, 2]


def test_unused_tokens_add_nothing() -> None:
    tokenizer = Tokenizer.from_data(gguf_data({"a": NORMAL, "[PAD1]": UNUSED}))
    assert tokenizer.token_bytes(1) == b""
    assert tokenizer.decode([0, 1, 0]) == "aa"


# --- SentencePiece -----------------------------------------------------------------------------


@pytest.mark.parametrize("space", [None, True, False])
def test_scores_stand_for_merges(space: bool | None) -> None:
    twin = transformers_twin(sentencepiece_json(prefix=space is not False))
    tokenizer = Tokenizer.from_data(_llama(space=space))
    for text in TEXTS:
        if set(text) & {"▁"} or any(marker in text for marker in ("<think>",)):
            continue
        ids = tokenizer.encode(text)
        assert ids == twin.encode(text, add_special_tokens=False), text
        assert tokenizer.decode(ids) == text


def test_better_scores_merge_first() -> None:
    types = {"<unk>": UNKNOWN, **dict.fromkeys(("a", "b", "c", "ab", "bc"), NORMAL)}
    for scores, expected in (((0, 0, 0, 0, -1, -2), [4, 3]), ((0, 0, 0, 0, -2, -1), [1, 5])):
        data = gguf_data(
            types, model="llama", scores=tuple(map(float, scores)), space=True, unk_id=0
        )
        ids = Tokenizer.from_data(data).encode("abc")
        assert ids[-2:] == expected


def test_unknown_characters_without_byte_tokens_are_unknown() -> None:
    types = {"<unk>": UNKNOWN, **dict.fromkeys("a▁<unk>", NORMAL)}
    tokenizer = Tokenizer.from_data(gguf_data(types, model="llama", space=False, unk_id=0))
    assert tokenizer.encode("aéa") == [1, 0, 1]
    assert tokenizer.encode("<unk>") == [3, 4, 5, 6, 7]


def test_runs_of_spaces_are_tokens_whatever_their_spelling() -> None:
    types = {"<unk>": UNKNOWN, "▁": NORMAL, "  ": DEFINED_TYPE, "a": NORMAL}
    tokenizer = Tokenizer.from_data(gguf_data(types, model="llama", space=False, unk_id=0))
    assert tokenizer.encode("  a") == [2, 3]
    assert tokenizer.decode([2, 3]) == "  a"


def test_gemma4_takes_merges_from_the_file() -> None:
    types = {"<pad>": CONTROL, **dict.fromkeys(("▁", "a", "b", "ab", "\n"), NORMAL)}
    data = gguf_data(types, model="gemma4", merges=("a b",), space=False)
    tokenizer = Tokenizer.from_data(data)
    assert tokenizer.encode("ab\n ab") == [4, 5, 1, 4]


def test_llama_markers_are_control() -> None:
    tokenizer = Tokenizer.from_data(_llama(space=True))
    assert set(LLAMA_MARKERS) == set(tokenizer.markers)


# --- damaged files -----------------------------------------------------------------------------


def test_an_unread_kind_is_told() -> None:
    with pytest.raises(ModelFileError, match="'rwkv' tokenizer"):
        Tokenizer.from_data(gguf_data({"a": NORMAL}, model="rwkv"))


def test_byte_tokens() -> None:
    assert byte_piece("<0x0A>") == b"\n"
    assert byte_piece("<0xZZ>") == b"<0xZZ>"
    assert byte_piece("abc") == b"abc"
