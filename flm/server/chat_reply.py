"""``chat.completion`` and ``chat.completion.chunk``."""

from typing import Any

from flm.server.responses import CallPiece, Piece, ReplyHead
from flm.types import TokenLogprob


class ChatDialect:
    """Choices as chat completions have them."""

    object_name = "chat.completion"
    chunk_object_name = "chat.completion.chunk"

    def choice(self, piece: Piece, head: ReplyHead) -> dict[str, Any]:
        """A choice with its whole message."""
        message: dict[str, Any] = {
            "role": "assistant",
            # OpenAI has null beside calls; a reply that says nothing is an empty string.
            "content": None if piece.calls and not piece.content else piece.content,
            "refusal": None,
            "annotations": [],
        }
        if piece.calls:
            message["tool_calls"] = [_call(call) for call in piece.calls]
        if piece.reasoning:
            message["reasoning_content"] = piece.reasoning
        return _choice(piece, head, "message", message)

    def chunk_choices(
        self, piece: Piece, head: ReplyHead, *, is_first: bool
    ) -> list[dict[str, Any]]:
        """The deltas of one piece; the first of a choice brings the role."""
        choices: list[dict[str, Any]] = []
        if is_first:
            choices.append(self.opening(piece.index, head, is_first=True))
        choices.append(_choice(piece, head, "delta", _delta(piece)))
        return choices

    def opening(self, index: int, head: ReplyHead, *, is_first: bool) -> dict[str, Any]:
        """The role, once; afterwards an empty delta."""
        delta = {"role": "assistant", "content": "", "refusal": None} if is_first else {}
        return _choice(Piece(index), head, "delta", delta)


def _delta(piece: Piece) -> dict[str, Any]:
    if piece.finish_reason is not None:
        return {}
    if piece.reasoning:
        return {"reasoning_content": piece.reasoning}
    if piece.calls:
        return {"tool_calls": [{"index": call.index, **_call(call)} for call in piece.calls]}
    return {"content": piece.content}


def _call(call: CallPiece) -> dict[str, Any]:
    """A call, or in a stream a part of one: what stands where a call begins is not said again."""
    if call.id is None:
        return {"function": {"arguments": call.arguments}}
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _choice(piece: Piece, head: ReplyHead, key: str, body: dict[str, Any]) -> dict[str, Any]:
    is_delta = key == "delta"
    has_logprobs = head.with_logprobs and (bool(piece.logprobs) or not is_delta)
    choice: dict[str, Any] = {
        "index": piece.index,
        key: body,
        "logprobs": _logprobs(piece.logprobs) if has_logprobs else None,
        "finish_reason": piece.finish_reason,
    }
    if head.with_token_ids and (piece.token_ids or not is_delta):
        choice["token_ids"] = piece.token_ids
    return choice


def _logprobs(entries: tuple[TokenLogprob, ...]) -> dict[str, Any]:
    return {"content": [entry_dict(entry) for entry in entries], "refusal": None}


def entry_dict(entry: TokenLogprob) -> dict[str, Any]:
    """A token with its log probability and the best alternatives."""
    return {
        **_token(entry.text, entry.raw, entry.logprob if entry.logprob is not None else 0.0),
        "top_logprobs": [_token(top.text, top.raw, top.logprob) for top in entry.top],
    }


def _token(text: str, raw: bytes, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(raw)}
