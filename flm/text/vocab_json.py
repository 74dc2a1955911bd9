"""A tokenizer from the ``tokenizer.json`` of a Hugging Face folder."""

from collections.abc import Callable, Iterator
from typing import Any

import orjson
from tokenizers import AddedToken, Tokenizer

from flm.errors import ModelFileError
from flm.text.backend import Backend, PrivateNames, looks_like_marker
from flm.text.bound import json_bound
from flm.text.bytelevel import to_bytes
from flm.text.vocab_gguf import byte_piece
from flm.types import TokenizerData

_SPACE = "▁"


def json_backend(source: str, data: TokenizerData) -> Backend:
    """Build the encoder and the byte table.

    Raises:
        ModelFileError: the file is damaged or of a kind the tokenizers library does not read.
    """
    try:
        document = orjson.loads(source)
        return _Builder(document, data).build()
    except Exception as error:
        raise ModelFileError(
            f"tokenizer.json cannot be read ({error}); fetch the model's files again."
        ) from error


class _Builder:
    """One document on its way to an encoder. The document is changed in place."""

    def __init__(self, document: dict[str, Any], data: TokenizerData) -> None:
        self.document = document
        self.data = data
        self.names = PrivateNames()
        self.added: list[dict[str, Any]] = document.get("added_tokens") or []
        self.texts = dict(_vocab_items(document["model"]))
        self.texts.update({token["id"]: token["content"] for token in self.added})
        added_ids = {token["id"] for token in self.added}
        self.defined = {t["id"]: t["content"] for t in self.added if not self._is_control(t)}
        self.control = {t["id"]: t["content"] for t in self.added if self._is_control(t)}
        self.unlisted = {i: self.texts[i] for i in self._ends() if i not in added_ids}
        self.control.update(self.unlisted)

    def build(self) -> Backend:
        self._rename()
        piece = _piece_reader(self.document)
        pieces = tuple(self._piece(i, piece) for i in range(max(self.texts, default=-1) + 1))
        # The service adds BOS itself, and a prompt is never cut or padded in silence.
        self.document.update(post_processor=None, truncation=None, padding=None)
        encoder = Tokenizer.from_str(orjson.dumps(self.document).decode())
        encoder.add_special_tokens(
            [AddedToken(self.names.of(i), normalized=False, special=True) for i in self.unlisted]
        )
        return Backend(
            encoder=encoder,
            names=self.names,
            pieces=pieces,
            control=self.control,
            defined=tuple(self.defined.values()),
            has_space_prefix=_strips_space(self.document.get("decoder")),
            bound=json_bound(
                self.document,
                {
                    "normalizer": _steps(self.document.get("normalizer"), "normalizers"),
                    "pre_tokenizer": _steps(self.document.get("pre_tokenizer"), "pretokenizers"),
                },
                self.texts.values(),
                pieces,
            ),
        )

    def _is_control(self, token: dict[str, Any]) -> bool:
        # A token that ends a turn is one even where the file forgot to say so.
        return bool(token["special"]) or token["id"] in self._ends()

    def _ends(self) -> frozenset[int]:
        ids = self.data.eos_ids | ({self.data.bos_id} - {None})
        return frozenset(
            i for i in ids if i is not None and looks_like_marker(self.texts.get(i, ""))
        )

    def _piece(self, token_id: int, piece: Callable[[str], bytes]) -> bytes:
        text = self.texts.get(token_id, "")
        is_literal = token_id in self.control or token_id in self.defined
        return text.encode("utf-8", "replace") if is_literal else piece(text)

    # --- private names -------------------------------------------------------------------------

    def _rename(self) -> None:
        """Give every control token its private name, wherever the document mentions it."""
        renamed = {text: self.names.of(token_id) for token_id, text in self.control.items()}
        for token in self.added:
            if token["id"] in self.control:
                token.update(content=self.names.of(token["id"]), normalized=False, special=True)
        model = self.document["model"]
        model["vocab"] = _renamed_vocab(model["vocab"], renamed)
        if model.get("unk_token") in renamed:
            model["unk_token"] = renamed[model["unk_token"]]
        if model.get("merges"):
            model["merges"] = [m for m in model["merges"] if not _touches(m, renamed)]


def _vocab_items(model: dict[str, Any]) -> Iterator[tuple[int, str]]:
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        return ((token_id, text) for text, token_id in vocab.items())
    return ((token_id, entry[0]) for token_id, entry in enumerate(vocab))


def _renamed_vocab(vocab: Any, renamed: dict[str, str]) -> Any:
    if isinstance(vocab, dict):
        return {renamed.get(text, text): token_id for text, token_id in vocab.items()}
    return [[renamed.get(entry[0], entry[0]), entry[1]] for entry in vocab]


def _touches(merge: str | list[str], renamed: dict[str, str]) -> bool:
    """True when a merge has a control token as a part or as its result."""
    parts = merge.split(" ") if isinstance(merge, str) else merge
    return "".join(parts) in renamed or any(part in renamed for part in parts)


# --- bytes -------------------------------------------------------------------------------------


def _steps(component: dict[str, Any] | None, kind: str) -> list[dict[str, Any]]:
    """A decoder or pre-tokeniser as a flat list of its steps."""
    if component is None:
        return []
    if component["type"] != "Sequence":
        return [component]
    return [step for inner in component[kind] for step in _steps(inner, kind)]


def _piece_reader(document: dict[str, Any]) -> Callable[[str], bytes]:
    """How this tokenizer's decoder turns one token into bytes."""
    decoder = {step["type"] for step in _steps(document.get("decoder"), "decoders")}
    before = {step["type"] for step in _steps(document.get("pre_tokenizer"), "pretokenizers")}
    if "ByteLevel" in decoder or (not decoder and "ByteLevel" in before):
        return to_bytes
    if "WordPiece" in decoder:
        prefix = document["decoder"].get("prefix", "##")
        return lambda text: _wordpiece(text, prefix)
    if decoder & {"ByteFallback", "Metaspace", "Replace"}:
        return _sentencepiece
    return lambda text: text.encode("utf-8", "replace")


def _sentencepiece(text: str) -> bytes:
    return byte_piece(text.replace(_SPACE, " "))


def _wordpiece(text: str, prefix: str) -> bytes:
    joined = text.removeprefix(prefix)
    return (joined if joined != text else f" {text}").encode("utf-8", "replace")


def _strips_space(decoder: dict[str, Any] | None) -> bool:
    """True when decoding takes away the space that encoding put before the text."""
    for step in _steps(decoder, "decoders"):
        if step["type"] == "Strip" and step.get("start", 0) > 0:
            return True
        if step["type"] == "Metaspace":
            default = "always" if step.get("add_prefix_space", True) else "never"
            return bool(step.get("prepend_scheme", default) != "never")
        if step["type"] == "WordPiece":
            return True
    return False
