"""What a tokenizer is made of, whatever file it came from.

Control tokens are known to the encoder only under private names that no text can hold. So no
text, however it is written, becomes a control token by being tokenised; whoever wants one puts
its private name into the text.
"""

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flm.text.bound import TextBound

_OPEN = "\U000f5e1a"
_CLOSE = "\U000f5e1b"


class PrivateNames:
    """Names for token ids; the nonce makes them impossible to guess."""

    def __init__(self) -> None:
        self._nonce = secrets.token_hex(8)
        self._pattern = re.compile(f"{_OPEN}{self._nonce}([0-9]+){_CLOSE}")

    def of(self, token_id: int) -> str:
        """The name of a token."""
        return f"{_OPEN}{self._nonce}{token_id}{_CLOSE}"

    def replace(self, text: str, texts: Mapping[int, str]) -> str:
        """``text`` with every name replaced by its token's own text."""
        return self._pattern.sub(lambda match: texts[int(match[1])], text)


@dataclass(frozen=True, slots=True, eq=False)
class Backend:
    """An encoder and its vocabulary.

    ``pieces`` has the bytes of every token id. ``control`` maps ids to marker texts. ``defined``
    are the texts of added tokens that are no control tokens: they always match. A text begins
    with a space of the tokenizer's own making when ``has_space_prefix``. ``bound``
    says how few tokens a text can have; None: nothing is known.
    """

    encoder: Any
    names: PrivateNames
    pieces: tuple[bytes, ...]
    control: Mapping[int, str]
    defined: tuple[str, ...]
    has_space_prefix: bool
    bound: TextBound | None = None


def longest_first(texts: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern for any of the texts, leftmost then longest; None when there are none."""
    ordered = sorted({text for text in texts if text}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def looks_like_marker(text: str) -> bool:
    """True for the shapes of control tokens, such as ``<|end|>`` or ``[INST]``."""
    return len(text) > 2 and (text[0], text[-1]) in {("<", ">"), ("[", "]")}
