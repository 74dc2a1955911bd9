import json

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from flm.errors import ModelFileError
from flm.text.tokenizer import Tokenizer
from tests.support.vocabularies import byte_level_json, data_of, sentencepiece_json


def _changed(document: str, **changes: object) -> str:
    return json.dumps({**json.loads(document), **changes})


@pytest.mark.parametrize(
    "source", ["", "{", "[]", "{}", '{"model": {}}', '{"model": {"vocab": 3}}']
)
def test_a_damaged_file_is_told(source: str) -> None:
    data = data_of(byte_level_json(), eos="<|im_end|>")
    object.__setattr__(data, "tokenizer_json", source)
    with pytest.raises(ModelFileError, match="cannot be read"):
        Tokenizer.from_data(data)


def test_the_files_truncation_and_padding_are_not_applied() -> None:
    truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    source = _changed(byte_level_json(), truncation=truncation)
    tokenizer = Tokenizer.from_data(data_of(source, eos="<|im_end|>"))
    text = "a b c d e f g h i j k l m n"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_prefix_space_is_known_by_the_decoder() -> None:
    for source, expected in (
        (byte_level_json(), False),
        (sentencepiece_json(), True),
        (sentencepiece_json(prefix=False), False),
    ):
        eos = "</s>" if "</s>" in source else "<|im_end|>"
        assert Tokenizer.from_data(data_of(source, eos=eos)).has_space_prefix is expected


def test_a_unigram_vocabulary_cannot_spell_a_control_token() -> None:
    pieces = [("<unk>", 0.0), ("<s>", -1.0), ("<", -3.0), ("s", -3.0), (">", -3.0), ("▁", -2.0)]
    backend = Backend(models.Unigram(pieces, unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    backend.decoder = decoders.Metaspace(prepend_scheme="never")
    backend.add_special_tokens(["<unk>", "<s>"])
    tokenizer = Tokenizer.from_data(data_of(backend.to_str(), eos="<s>"))
    assert tokenizer.encode("<s> s") == [2, 3, 4, 5, 3]
    assert tokenizer.encode("<s> s", control=True) == [1, 5, 3]
    assert tokenizer.decode([2, 3, 4, 5, 3]) == "<s> s"


def test_a_vocabulary_word_cannot_spell_a_control_token() -> None:
    words = {"[UNK]": 0, "[END]": 1, "hi": 2}
    backend = Backend(models.WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["[UNK]"])
    # The end token stands in the vocabulary only; the configuration names it.
    tokenizer = Tokenizer.from_data(data_of(backend.to_str(), eos="[END]"))
    assert tokenizer.encode("hi [END]") == [2, 0]
    assert tokenizer.encode("hi [END]", control=True) == [2, 1]


def test_a_wordpiece_vocabulary_is_read() -> None:
    words = {"[UNK]": 0, "play": 1, "##ing": 2, "now": 3}
    backend = Backend(models.WordPiece(words, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens(["[UNK]"])
    tokenizer = Tokenizer.from_data(data_of(backend.to_str(), eos="[UNK]"))
    assert tokenizer.encode("playing now") == [1, 2, 3]
    assert tokenizer.decode([1, 2, 3]) == "playing now"
