"""How few tokens a text can have, from its length alone: a bound that needs no tokenising.

It exists where every byte of a text ends in some token's bytes and in no other way: byte-pair
encodings that throw nothing away. Then no text of n bytes has fewer than n divided by the longest
token's bytes. Vocabularies that lack a few rare bytes drop those in silence; they do not count.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flm.text.bytelevel import BYTE_OF_CHAR

NFC_SHRINK = 4
"""Composing characters (Unicode's NFC) makes no text shorter than a fourth, in bytes of UTF-8."""

# Bytes that occur in no UTF-8.
_NO_UTF8 = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})
# Bytes of characters that composing neither makes nor takes: ASCII controls, planes 4 and above.
_RARE = frozenset({*range(0x20), 0x7F, *range(0xF1, 0xF5)})
_LETTER = {byte: char for char, byte in BYTE_OF_CHAR.items() if byte not in _NO_UTF8}
_BYTE_TOKENS = frozenset(f"<0x{byte:02X}>" for byte in range(256) if byte not in _NO_UTF8)
_SHRINK = {"NFC": NFC_SHRINK, "Prepend": 1, "Replace": 1}
_CUTS = frozenset({"ByteLevel", "Digits", "Metaspace", "Split"})


@dataclass(frozen=True, slots=True)
class TextBound:
    """At most ``bytes_per_token`` bytes of a text end in one token, the ``lost`` ones in none."""

    bytes_per_token: int
    lost: bytes = b""

    def min_tokens(self, text: str) -> int:
        """At least so many tokens ``text`` has."""
        kept = len(text.encode("utf-8", "replace").translate(None, self.lost))
        return -(-kept // self.bytes_per_token)


def text_bound(vocab: Iterable[str], longest: int, *, is_byte_level: bool) -> TextBound | None:
    """The bound of an encoding that throws nothing away but the bytes that it does not know."""
    known = set(vocab)
    if not is_byte_level:
        return TextBound(longest) if known >= _BYTE_TOKENS else None
    lost = {byte for byte, char in _LETTER.items() if char not in known}
    return TextBound(longest, bytes(sorted(lost))) if lost <= _RARE else None


def longest_token(pieces: Iterable[bytes], unused: Iterable[str] = ()) -> int:
    """Bytes of the longest token; those of ``unused`` tokens have only their texts."""
    texts = max((len(text.encode("utf-8", "replace")) for text in unused), default=1)
    return max(texts, max(map(len, pieces), default=1))


def json_bound(
    document: Mapping[str, Any],
    steps: Mapping[str, list[dict[str, Any]]],
    vocab: Iterable[str],
    pieces: Iterable[bytes],
) -> TextBound | None:
    """The bound of a tokenizer.json, if it has one.

    ``steps`` has the normaliser's and the pre-tokeniser's steps.
    """
    model = document["model"]
    kinds = {step["type"] for step in steps["pre_tokenizer"]}
    shrink = 1
    for step in steps["normalizer"]:
        factor = _SHRINK.get(step["type"])
        if factor is None or (step["type"] == "Replace" and not _keeps_spaces(step)):
            return None
        shrink *= factor
    is_plain = (
        model.get("type") == "BPE"
        and not model.get("continuing_subword_prefix")
        and not model.get("end_of_word_suffix")
        and kinds <= _CUTS
        and all(step.get("behavior") != "Removed" for step in steps["pre_tokenizer"])
        # Added tokens with these take any amount of white space with them.
        and not any(
            token.get("lstrip") or token.get("rstrip")
            for token in document.get("added_tokens") or ()
        )
    )
    is_byte_level = "ByteLevel" in kinds
    if not is_plain or not (is_byte_level or model.get("byte_fallback")):
        return None
    return text_bound(vocab, shrink * longest_token(pieces), is_byte_level=is_byte_level)


def _keeps_spaces(step: Mapping[str, Any]) -> bool:
    return step.get("pattern") == {"String": " "} and bool(step.get("content"))
