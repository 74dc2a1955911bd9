import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given

from flm.errors import InvalidRequestError, ModelFileError
from flm.text.tokenizer import Tokenizer
from flm.types import TokenizerData
from tests.support.vocabularies import (
    CHATML_MARKERS,
    byte_level_json,
    data_of,
    sentencepiece_json,
    transformers_twin,
)
from tests.text.samples import TEXTS, hostile_text, plain_text

JSONS = {
    "byte level": (byte_level_json(), "<|im_end|>"),
    "byte level, late": (byte_level_json(late=True), "<|im_end|>"),
    "sentencepiece": (sentencepiece_json(), "</s>"),
    "no prefix": (sentencepiece_json(prefix=False), "</s>"),
    "metaspace": (sentencepiece_json(metaspace=True), "</s>"),
}
OURS = {name: Tokenizer.from_data(data_of(text, eos=eos)) for name, (text, eos) in JSONS.items()}
TWINS = {name: transformers_twin(text) for name, (text, _) in JSONS.items()}
kinds = pytest.mark.parametrize("kind", JSONS)


# --- text to ids -------------------------------------------------------------------------------


@kinds
def test_other_threads_run_while_a_long_text_is_encoded(kind: str) -> None:
    """A server reads prompts beside its event loop; one long prompt must not hold up the rest."""
    with ThreadPoolExecutor(1) as pool:
        ids = pool.submit(OURS[kind].encode, "word " * 100_000)
        num_turns = 0
        while not ids.done():
            time.sleep(0.001)
            num_turns += 1
    assert len(ids.result()) > 100_000
    assert num_turns > 5


@kinds
@pytest.mark.parametrize("text", TEXTS)
def test_encode_equals_transformers(kind: str, text: str) -> None:
    assert OURS[kind].encode(text) == TWINS[kind].encode(text, add_special_tokens=False)


@kinds
@given(text=plain_text)
def test_encode_equals_transformers_on_any_text(kind: str, text: str) -> None:
    expected = TWINS[kind].encode(text, add_special_tokens=False)
    assert OURS[kind].encode(text, control=True) == expected


@kinds
@given(text=hostile_text)
def test_with_control_markers_are_tokens_as_in_transformers(kind: str, text: str) -> None:
    expected = TWINS[kind].encode(text, add_special_tokens=False)
    assert OURS[kind].encode(text, control=True) == expected


@kinds
@given(text=hostile_text)
def test_without_control_no_text_gives_a_control_token(kind: str, text: str) -> None:
    tokenizer = OURS[kind]
    ids = tokenizer.encode(text)
    assert not tokenizer.control_ids & set(ids)
    if "byte" in kind:
        assert tokenizer.decode(ids) == text


def test_user_defined_tokens_always_match() -> None:
    tokenizer = OURS["byte level"]
    ids = tokenizer.encode("<think>")
    assert len(ids) == 1
    assert not tokenizer.is_control(ids[0])


def test_a_private_name_cannot_be_carried_over() -> None:
    one, other = (Tokenizer.from_data(data_of(byte_level_json(), eos="<|im_end|>")) for _ in "ab")
    assert not other.control_ids & set(other.encode(one.to_private("<|im_end|>")))


def test_an_end_token_is_control_even_where_the_file_forgot() -> None:
    data = data_of(byte_level_json(), eos="<tool_call>")
    tokenizer = Tokenizer.from_data(data)
    assert data.eos_ids <= tokenizer.control_ids
    assert not data.eos_ids & set(tokenizer.encode("a <tool_call> b"))
    assert data.eos_ids <= set(tokenizer.encode("a <tool_call> b", control=True))


def test_bos_is_never_doubled() -> None:
    data = data_of(sentencepiece_json(), bos="<s>", eos="</s>", add_bos=True)
    tokenizer = Tokenizer.from_data(data)
    assert tokenizer.encode("hi", bos=True)[0] == tokenizer.bos_id
    assert tokenizer.encode("hi", bos=True)[1:] == tokenizer.encode("hi")
    assert tokenizer.encode("<s>hi", control=True, bos=True).count(data.bos_id or 0) == 1
    assert tokenizer.encode("", bos=True) == [tokenizer.bos_id]
    # BOS as text is text, so the real one still comes first.
    assert tokenizer.encode("<s>hi", bos=True)[0] == tokenizer.bos_id


def test_bos_stays_away_where_it_is_not_wanted() -> None:
    tokenizer = Tokenizer.from_data(data_of(sentencepiece_json(), bos="<s>", eos="</s>"))
    assert tokenizer.bos_id not in tokenizer.encode("hi", bos=True)


@kinds
@pytest.mark.parametrize("text", ["\ud800", "ok \udfff", "\ud83d x"])
def test_a_lone_surrogate_is_refused(kind: str, text: str) -> None:
    with pytest.raises(InvalidRequestError, match="lone surrogate"):
        OURS[kind].encode(text, control=True)


# --- ids to text -------------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("text", TEXTS)
def test_decode_gives_the_text_back(kind: str, text: str) -> None:
    tokenizer = OURS[kind]
    visible = text.replace("▁", " ") if "byte" not in kind else text
    decoded = tokenizer.decode(tokenizer.encode(text))
    # Metaspace adds no space to a text that has one, and decoding cannot know.
    assert decoded in (visible, visible.removeprefix(" ") if kind == "metaspace" else visible)


@kinds
def test_decode_equals_transformers_on_whole_characters(kind: str) -> None:
    for text in TEXTS[2:17]:
        ids = TWINS[kind].encode(text, add_special_tokens=False)
        assert OURS[kind].decode(ids) == TWINS[kind].decode(ids, skip_special_tokens=True)


@kinds
@given(text=plain_text)
def test_the_bytes_of_the_tokens_are_the_bytes_of_the_text(kind: str, text: str) -> None:
    tokenizer = OURS[kind]
    raw = b"".join(map(tokenizer.token_bytes, tokenizer.encode(text)))
    expected = text if "byte" in kind else text.replace("▁", " ")
    assert raw.decode() in (expected, " " + expected)


def test_control_tokens_show_themselves_and_are_skipped_in_text() -> None:
    tokenizer = OURS["byte level"]
    ids = tokenizer.encode("a<|im_end|>b", control=True)
    assert tokenizer.decode(ids) == "ab"
    assert tokenizer.decode(ids, skip_control=False) == "a<|im_end|>b"
    (end,) = tokenizer.encode("<|im_end|>", control=True)
    assert tokenizer.token_bytes(end) == b"<|im_end|>"
    assert tokenizer.is_control(end)


def test_a_part_of_a_character_is_shown_as_such() -> None:
    tokenizer = OURS["sentencepiece"]
    ids = tokenizer.encode("🦆")
    assert [tokenizer.token_bytes(i) for i in ids[-4:]] == [b"\xf0", b"\x9f", b"\xa6", b"\x86"]
    assert tokenizer.token_text(ids[-1]) == "\ufffd"


def test_ids_outside_the_vocabulary() -> None:
    tokenizer = OURS["byte level"]
    assert tokenizer.token_bytes(tokenizer.vocab_size) == b""
    assert tokenizer.token_bytes(-1) == b""
    assert tokenizer.decode([10**9]) == ""


# --- files -------------------------------------------------------------------------------------


def test_a_model_without_a_tokenizer_is_told() -> None:
    data = TokenizerData(
        tokenizer_json=None,
        vocab=None,
        chat_template=None,
        bos_id=None,
        eos_ids=frozenset(),
        unk_id=None,
        pad_id=None,
        add_bos=False,
        add_eos=False,
    )
    with pytest.raises(ModelFileError, match="no tokenizer"):
        Tokenizer.from_data(data)


# --- the real vocabulary -----------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize("text", TEXTS)
def test_smollm2_equals_transformers(text: str, smollm2: Tokenizer, smollm2_twin: Any) -> None:
    ids = smollm2.encode(text)
    assert ids == smollm2_twin.encode(text, add_special_tokens=False)
    assert smollm2.decode(ids) == text


@pytest.mark.real
@given(text=hostile_text)
def test_smollm2_equals_transformers_on_any_text(
    text: str, smollm2: Tokenizer, smollm2_twin: Any
) -> None:
    expected = smollm2_twin.encode(text, add_special_tokens=False)
    assert smollm2.encode(text, control=True) == expected
    assert not smollm2.control_ids & set(smollm2.encode(text))


@pytest.mark.real
def test_smollm2_special_tokens(smollm2: Tokenizer) -> None:
    assert smollm2.vocab_size == 49152
    assert smollm2.control_ids == frozenset(range(17))
    assert set(CHATML_MARKERS) <= set(smollm2.markers)
    assert not smollm2.add_bos
