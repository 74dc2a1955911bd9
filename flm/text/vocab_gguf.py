"""A tokenizer from the ``tokenizer.ggml.*`` metadata of a GGUF file."""

from collections.abc import Iterator, Sequence

from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE

from flm.errors import ModelFileError
from flm.text.backend import Backend, PrivateNames, looks_like_marker
from flm.text.bound import TextBound, longest_token, text_bound
from flm.text.bytelevel import to_bytes
from flm.text.pretokenizers import pre_tokenizer
from flm.types import GGUFVocab, TokenizerData

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_SPACE = "▁"  # SentencePiece's visible space


def gguf_backend(vocab: GGUFVocab, data: TokenizerData) -> Backend:
    """Build the encoder and the byte table.

    Raises:
        ModelFileError: the vocabulary is of a kind that is not read, or its lists disagree.
    """
    if vocab.model not in _BUILDERS:
        raise ModelFileError(
            f"The GGUF file has a {vocab.model!r} tokenizer; {', '.join(_BUILDERS)} can be read. "
            "Use the model's Hugging Face folder instead."
        )
    if vocab.token_types and len(vocab.token_types) != len(vocab.tokens):
        raise ModelFileError(
            f"The GGUF file has {len(vocab.tokens)} tokens but {len(vocab.token_types)} token "
            "types; fetch the file again."
        )
    return _Builder(vocab, data).build()


class _Builder:
    """One vocabulary on its way to an encoder."""

    def __init__(self, vocab: GGUFVocab, data: TokenizerData) -> None:
        self.vocab = vocab
        self.data = data
        self.names = PrivateNames()
        self.is_byte_level = vocab.model == "gpt2"
        self.types = vocab.token_types or (_NORMAL,) * len(vocab.tokens)
        self.control = {
            token_id: text
            for token_id, text in enumerate(vocab.tokens)
            if self._is_control(token_id)
        }

    def build(self) -> Backend:
        encoder = self._byte_level() if self.is_byte_level else self._sentencepiece()
        encoder.add_special_tokens(
            [
                AddedToken(self.names.of(token_id), normalized=False, special=True)
                for token_id in self.control
            ]
        )
        defined = [self.vocab.tokens[token_id] for token_id in self._defined_ids()]
        encoder.add_tokens([AddedToken(text, normalized=False) for text in defined])
        pieces = tuple(self._piece(token_id) for token_id in range(len(self.vocab.tokens)))
        return Backend(
            encoder=encoder,
            names=self.names,
            pieces=pieces,
            control=self.control,
            defined=tuple(defined),
            has_space_prefix=not self.is_byte_level and self._adds_space,
            bound=self._bound(pieces),
        )

    def _bound(self, pieces: Sequence[bytes]) -> TextBound | None:
        texts = self.vocab.tokens
        unused = (text for text, kind in zip(texts, self.types, strict=True) if kind == _UNUSED)
        longest = longest_token(pieces, unused)
        return text_bound(texts, longest, is_byte_level=self.is_byte_level)

    # --- kinds of tokens -----------------------------------------------------------------------

    def _is_control(self, token_id: int) -> bool:
        if self.types[token_id] in (_CONTROL, _UNKNOWN):
            return True
        # Some files mark the token that ends a turn as an ordinary one.
        ends = token_id in self.data.eos_ids or token_id == self.data.bos_id
        return ends and looks_like_marker(self.vocab.tokens[token_id])

    def _is_blank(self, token_id: int) -> bool:
        # SentencePiece files spell runs of spaces as user-defined tokens; merges build them.
        return not self.is_byte_level and not self.vocab.tokens[token_id].strip(" " + _SPACE)

    def _defined_ids(self) -> Iterator[int]:
        for token_id, kind in enumerate(self.types):
            is_text = kind == _USER_DEFINED and not self._is_blank(token_id)
            if is_text and token_id not in self.control and self.vocab.tokens[token_id]:
                yield token_id

    # --- the two kinds of encoders -------------------------------------------------------------

    def _byte_level(self) -> Tokenizer:
        rules = pre_tokenizer(self.vocab.pre)
        ids = self._ids(self.vocab.tokens)
        model = BPE(ids, _known(_split(self.vocab.merges), ids), ignore_merges=rules.ignore_merges)
        encoder = Tokenizer(model)
        encoder.pre_tokenizer = rules.build()
        return encoder

    def _sentencepiece(self) -> Tokenizer:
        tokens = [
            text.replace(" ", _SPACE) if self._is_blank(token_id) else text
            for token_id, text in enumerate(self.vocab.tokens)
        ]
        ids = self._ids(tokens)
        merges = _known(_split(self.vocab.merges), ids) if self.vocab.merges else self._merges(ids)
        unk_id = self.data.unk_id
        unk = None if unk_id is None or unk_id not in self.control else self.names.of(unk_id)
        encoder = Tokenizer(BPE(ids, merges, unk_token=unk, fuse_unk=True, byte_fallback=True))
        spaces = normalizers.Replace(" ", _SPACE)
        prefix = [normalizers.Prepend(_SPACE)] if self._adds_space else []
        encoder.normalizer = normalizers.Sequence([*prefix, spaces])
        if self.vocab.model == "gemma4":
            encoder.pre_tokenizer = pre_tokenizers.Split(Regex(r"[^\n]+|\n+"), behavior="isolated")
        return encoder

    @property
    def _adds_space(self) -> bool:
        flag = self.vocab.add_space_prefix
        return self.vocab.model == "llama" if flag is None else flag

    def _ids(self, tokens: Sequence[str]) -> dict[str, int]:
        """The encoder's vocabulary; control tokens and second spellings get private names."""
        ids: dict[str, int] = {}
        for token_id, text in enumerate(tokens):
            is_private = token_id in self.control or text in ids
            ids[self.names.of(token_id) if is_private else text] = token_id
        return ids

    def _merges(self, ids: dict[str, int]) -> list[tuple[str, str]]:
        """The merges that a scored vocabulary implies: every way to cut a token in two, best
        token first (Kudo & Richardson 2018, BPE mode)."""
        ranked: list[tuple[float, int, int, int, str, str]] = []
        for text, token_id in ids.items():
            if len(text) < 2 or not self._can_merge(token_id):
                continue
            for cut in range(1, len(text)):
                left, right = text[:cut], text[cut:]
                if left in ids and right in ids:
                    rank = self._rank(token_id)
                    ranked.append((rank, token_id, ids[left], ids[right], left, right))
        ranked.sort()
        return [(left, right) for *_, left, right in ranked]

    def _can_merge(self, token_id: int) -> bool:
        return self.types[token_id] == _NORMAL or self._is_blank(token_id)

    def _rank(self, token_id: int) -> float:
        # Gemma's scores do not follow the order in which its merges were learned; its ids do.
        if not self._adds_space or len(self.vocab.scores) != len(self.vocab.tokens):
            return float(token_id)
        return -self.vocab.scores[token_id]

    # --- bytes ---------------------------------------------------------------------------------

    def _piece(self, token_id: int) -> bytes:
        text, kind = self.vocab.tokens[token_id], self.types[token_id]
        if token_id in self.control:
            return text.encode("utf-8", "replace")
        if kind == _UNUSED:
            return b""
        if self.is_byte_level:
            return to_bytes(text) if kind == _NORMAL else text.encode("utf-8", "replace")
        if kind == _BYTE:
            return byte_piece(text)
        return text.replace(_SPACE, " ").encode("utf-8", "replace")


def byte_piece(text: str) -> bytes:
    """The byte of a ``<0x0A>`` token; the text itself when it is written otherwise."""
    is_byte = len(text) == 6 and text.startswith("<0x") and text.endswith(">")
    try:
        return bytes([int(text[3:5], 16)]) if is_byte else text.encode("utf-8", "replace")
    except ValueError:
        return text.encode("utf-8", "replace")


def _split(merges: Sequence[str]) -> Iterator[tuple[str, str]]:
    for merge in merges:
        # The first character may itself be a space.
        cut = merge.find(" ", 1)
        if cut > 0:
            yield merge[:cut], merge[cut + 1 :]


def _known(merges: Iterator[tuple[str, str]], ids: dict[str, int]) -> list[tuple[str, str]]:
    """The merges whose parts and result are in the vocabulary; the library refuses others."""
    return [
        (left, right)
        for left, right in merges
        if left in ids and right in ids and left + right in ids
    ]


_BUILDERS = ("gpt2", "llama", "gemma4")
