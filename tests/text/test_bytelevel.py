from tokenizers import pre_tokenizers

from flm.text.bytelevel import BYTE_OF_CHAR, to_bytes


def test_the_alphabet_has_every_byte_once() -> None:
    assert sorted(BYTE_OF_CHAR.values()) == list(range(256))


def test_the_alphabet_is_the_librarys() -> None:
    assert set(BYTE_OF_CHAR) == set(pre_tokenizers.ByteLevel.alphabet())
    for text in ("é", " a\n", "日", "\x7f\xad"):
        (piece, _), *rest = pre_tokenizers.ByteLevel(False, use_regex=False).pre_tokenize_str(text)
        assert not rest
        assert to_bytes(piece) == text.encode()


def test_a_token_outside_the_alphabet_is_utf8() -> None:
    assert to_bytes("日本") == "日本".encode()
