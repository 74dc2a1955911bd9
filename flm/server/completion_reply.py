"""``text_completion``, whole and in chunks."""

from typing import Any

from flm.server.offsets import text_offsets
from flm.server.responses import Piece, ReplyHead
from flm.types import TokenLogprob


class CompletionDialect:
    """Choices as legacy completions have them."""

    object_name = "text_completion"
    chunk_object_name = "text_completion"

    def choice(self, piece: Piece, head: ReplyHead) -> dict[str, Any]:
        """A choice with its whole text."""
        choice = _choice(piece, head)
        if head.with_token_ids:
            choice["token_ids"] = piece.token_ids
            choice["prompt_token_ids"] = head.prompt_of(piece.index)
        return choice

    def chunk_choices(
        self, piece: Piece, head: ReplyHead, *, is_first: bool
    ) -> list[dict[str, Any]]:
        """The text of one piece."""
        choice = self.opening(piece.index, head, is_first=is_first) | _choice(piece, head)
        if head.with_token_ids and piece.token_ids:
            choice["token_ids"] = piece.token_ids
        return [choice]

    def opening(self, index: int, head: ReplyHead, *, is_first: bool) -> dict[str, Any]:
        """No text yet; the ids of the prompt, once."""
        choice = {"index": index, "text": "", "logprobs": None, "finish_reason": None}
        if head.with_token_ids and is_first:
            choice["prompt_token_ids"] = head.prompt_of(index)
        return choice


def _choice(piece: Piece, head: ReplyHead) -> dict[str, Any]:
    is_end_only = piece.finish_reason is not None and not piece.logprobs
    return {
        "index": piece.index,
        # A raw continuation has no reasoning channel; whatever came is text.
        "text": piece.reasoning + piece.content,
        "logprobs": _logprobs(piece) if head.with_logprobs and not is_end_only else None,
        "finish_reason": piece.finish_reason,
    }


def _logprobs(piece: Piece) -> dict[str, Any]:
    entries = piece.logprobs
    return {
        "tokens": [_name(entry.text, entry.raw) for entry in entries],
        "token_logprobs": [entry.logprob for entry in entries],
        "top_logprobs": [_top(entry) for entry in entries],
        "text_offset": text_offsets(entries, piece.offset),
    }


def _top(entry: TokenLogprob) -> dict[str, float] | None:
    """The alternatives and the token itself; None where there is no distribution."""
    if entry.logprob is None:
        return None
    top = {_name(item.text, item.raw): item.logprob for item in entry.top}
    top.setdefault(_name(entry.text, entry.raw), entry.logprob)
    return top


def _name(text: str, raw: bytes) -> str:
    """The token's text, or its bytes where they are no text: keys must not fall together."""
    if "\ufffd" not in text:
        return text
    return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
