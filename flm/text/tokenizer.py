"""Text to token ids and back, for any model file the project reads."""

from collections.abc import Iterable, Mapping, Sequence

from flm.errors import InvalidRequestError, ModelFileError
from flm.text.backend import Backend, longest_first
from flm.text.vocab_gguf import gguf_backend
from flm.text.vocab_json import json_backend
from flm.types import TokenizerData


class Tokenizer:
    """One model's vocabulary. Immutable; may be used from several threads at once.

    Control tokens (GGUF type control or unknown, Hugging Face ``special``, and the tokens that
    begin a text or end a turn) never come out of plain text; added tokens that are no control
    tokens, such as ``<think>``, always do.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        bos_id: int | None,
        eos_ids: frozenset[int],
        add_bos: bool,
        eos_id: int | None = None,
    ) -> None:
        self._backend = backend
        self.vocab_size = len(backend.pieces)
        self.bos_id = bos_id
        self.eos_ids = eos_ids
        self.eos_id = min(eos_ids, default=None) if eos_id is None else eos_id
        self.add_bos = add_bos and bos_id is not None
        self.control_ids = frozenset(backend.control)
        self._id_of_marker = {text: i for i, text in backend.control.items() if text}
        self._markers = longest_first((*self._id_of_marker, *backend.defined))

    @classmethod
    def from_data(cls, data: TokenizerData) -> "Tokenizer":
        """Build from what a model's files say.

        Raises:
            ModelFileError: there is no tokenizer, or it is of a kind that cannot be read.
        """
        return cls(_backend(data), bos_id=data.bos_id, eos_ids=data.eos_ids, add_bos=data.add_bos)

    @property
    def has_space_prefix(self) -> bool:
        """True when encoding puts a space before the text, which decoding takes away."""
        return self._backend.has_space_prefix

    # --- text to ids ---------------------------------------------------------------------------

    def encode(self, text: str, *, control: bool = False, bos: bool = False) -> list[int]:
        """Token ids of ``text``.

        With ``control``, marker strings become control tokens; without, they are plain
        characters. With ``bos``, BOS comes first where the tokenizer wants one, never twice.

        Raises:
            InvalidRequestError: ``text`` holds a lone surrogate, which is no character.
        """
        ids = self.encode_private(self.to_private(text) if control else text)
        return self.with_bos(ids) if bos else ids

    def min_tokens(self, text: str) -> int:
        """At least so many tokens ``text`` has, known without tokenising it; 0 where nothing is
        known."""
        bound = self._backend.bound
        return 0 if bound is None else bound.min_tokens(text)

    def with_bos(self, ids: list[int]) -> list[int]:
        """``ids`` with BOS before them, where the tokenizer wants one and it is not there yet."""
        if not self.add_bos or self.bos_id is None or ids[:1] == [self.bos_id]:
            return ids
        return [self.bos_id, *ids]

    def without_bos(self, ids: Sequence[int]) -> list[int]:
        """``ids`` without what ``with_bos`` puts before them."""
        has_bos = self.add_bos and self.bos_id is not None and list(ids[:1]) == [self.bos_id]
        return list(ids[1:] if has_bos else ids)

    def encode_private(self, text: str) -> list[int]:
        """Token ids of a text in which control tokens stand under their private names.

        Raises:
            InvalidRequestError: ``text`` holds a lone surrogate.
        """
        check_text(text)
        # Of the library's ways in, only those for a batch let other threads run meanwhile.
        (encoded,) = self._backend.encoder.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoded.ids
        return ids

    def to_private(self, text: str) -> str:
        """``text`` with every marker string replaced by its control token's private name."""
        if self._markers is None:
            return text
        return self._markers.sub(lambda match: self._private(match[0]), text)

    def to_public(self, text: str) -> str:
        """``text`` with every private name replaced by its marker string."""
        return self._backend.names.replace(text, self._backend.control)

    def find_markers(self, text: str) -> list[str]:
        """The marker strings of control tokens that stand in ``text``, in their order."""
        if self._markers is None:
            return []
        found = (match[0] for match in self._markers.finditer(text))
        return [marker for marker in found if marker in self._id_of_marker]

    def marker(self, token_id: int | None) -> str | None:
        """The text of a token as templates write it, such as ``<s>``; None without the token."""
        if token_id is None or not 0 <= token_id < self.vocab_size:
            return None
        text = self._backend.control.get(token_id)
        return self.token_text(token_id) if text is None else text

    def control_id(self, marker: str) -> int | None:
        """The control token whose text is ``marker``."""
        return self._id_of_marker.get(marker)

    def _private(self, text: str) -> str:
        token_id = self._id_of_marker.get(text)
        return text if token_id is None else self._backend.names.of(token_id)

    # --- ids to text ---------------------------------------------------------------------------

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token adds to a text; the marker itself for a control token.

        Ids beyond the vocabulary add nothing: models pad their last layer with rows that have
        no token.
        """
        return self._backend.pieces[token_id] if 0 <= token_id < self.vocab_size else b""

    def token_text(self, token_id: int) -> str:
        """``token_bytes`` as text; U+FFFD stands for a part of a character."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def is_control(self, token_id: int) -> bool:
        """True for a control token."""
        return token_id in self.control_ids

    def decode(self, token_ids: Iterable[int], *, skip_control: bool = True) -> str:
        """The text of a whole sequence; U+FFFD stands for bytes that are no character."""
        kept = (i for i in token_ids if not (skip_control and i in self.control_ids))
        text = b"".join(map(self.token_bytes, kept)).decode("utf-8", "replace")
        return text.removeprefix(" ") if self.has_space_prefix else text

    @property
    def markers(self) -> Mapping[str, int]:
        """Control tokens by their text."""
        return self._id_of_marker


def check_text(text: str) -> None:
    """Refuse text that has no UTF-8 form.

    Raises:
        InvalidRequestError: the text holds a lone surrogate.
    """
    try:
        if not text.isascii():
            text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"The text holds a lone surrogate (U+{ord(text[error.start]):04X}), which is no "
            "character; send valid Unicode."
        ) from error


def _backend(data: TokenizerData) -> Backend:
    if data.tokenizer_json is not None:
        return json_backend(data.tokenizer_json, data)
    if data.vocab is not None:
        return gguf_backend(data.vocab, data)
    raise ModelFileError(
        "The model has no tokenizer; a Hugging Face folder needs tokenizer.json, a GGUF file its "
        "tokenizer.ggml entries."
    )
