"""Token ids to text, one at a time, never showing a part of a character."""

import codecs

from flm.text.tokenizer import Tokenizer


class Detokenizer:
    """A feed/flush machine over one sequence.

    ``continues`` says that a text precedes the first token (a prompt, as a rule). Without, a
    tokenizer that puts a space before every text has it taken away again. Control tokens add no
    text, except those of ``shown_ids`` or all of them without ``skip_control``.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        continues: bool = True,
        skip_control: bool = True,
        shown_ids: frozenset[int] = frozenset(),
    ) -> None:
        self._tokenizer = tokenizer
        self._shown_ids = shown_ids
        self._skip_control = skip_control
        self._drops_space = tokenizer.has_space_prefix and not continues
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    @property
    def is_inside_character(self) -> bool:
        """True while the last bytes begin a character that more bytes may complete."""
        return self._decoder.getstate()[0] != b""

    def feed(self, token_id: int) -> str:
        """The text that this token completes; may be empty."""
        if self.skips(token_id):
            return ""
        return self._first(self._decoder.decode(self._tokenizer.token_bytes(token_id)))

    def flush(self) -> str:
        """The end of the text: U+FFFD for a character that was never completed, or nothing."""
        return self._first(self._decoder.decode(b"", final=True))

    def skips(self, token_id: int) -> bool:
        """True for a token that adds no text, whatever is written in it."""
        is_control = self._skip_control and self._tokenizer.is_control(token_id)
        return is_control and token_id not in self._shown_ids

    def _first(self, text: str) -> str:
        if not self._drops_space or not text:
            return text
        self._drops_space = False
        return text.removeprefix(" ")
