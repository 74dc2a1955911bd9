"""Anthropic's Messages."""

from collections.abc import Iterator, Mapping
from typing import Any

from flm.router.adapt import Adapted, Body
from flm.router.dialects.base import (
    Data,
    compact,
    described,
    number_of,
    raise_error,
    start_of,
    text_of,
)
from flm.router.parts import (
    CitationPart,
    MediaPart,
    Part,
    RefusalPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from flm.router.request import Message, Tool
from flm.router.response import (
    CitationDelta,
    FinishReason,
    StreamEnd,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)

_REASONS: Mapping[str, FinishReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_call",
    "pause_turn": "tool_call",
    "refusal": "content_filter",
}


class AnthropicDialect:
    """POST /messages."""

    def body(self, adapted: Adapted, *, stream: bool) -> Body:
        """System text, messages and tools."""
        request = adapted.request
        body: Body = {"model": adapted.model, "stream": stream}
        if request.system_text is not None:
            body["system"] = request.system_text
        body["messages"] = [_row(message) for message in request.messages]
        if adapted.tools:
            body["tools"] = [_tool(tool, adapted) for tool in adapted.tools]
        return body

    def whole(self, data: Data, provider: str) -> Iterator[StreamEvent]:
        """One message."""
        raise_error(data, provider)
        yield start_of(data)
        for place, block in enumerate(data["content"]):
            yield from _begin(place, block, is_whole=True)
        yield StreamEnd(_reason(data.get("stop_reason")), _usage(data))

    def parser(self, provider: str) -> "AnthropicParser":
        """A reader of a stream."""
        return AnthropicParser(provider)


class AnthropicParser:
    """Reads the events of a message."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._is_started = False
        self._reason: FinishReason | None = None
        self._usage = Usage()
        self._is_ended = False

    def feed(self, data: Data) -> Iterator[StreamEvent]:
        """Read one event."""
        raise_error(data, self._provider)
        match data.get("type"):
            case "message_start":
                message = data["message"]
                self._usage = self._usage.updated(_usage(message))
                self._is_started = True
                yield start_of(message)
            case "content_block_start":
                yield from _begin(int(data["index"]), data["content_block"], is_whole=False)
            case "content_block_delta":
                yield from _delta(int(data["index"]), data["delta"])
            case "message_delta":
                self._usage = self._usage.updated(_usage(data))
                if data["delta"].get("stop_reason") is not None:
                    self._reason = _reason(data["delta"]["stop_reason"])
            case "message_stop":
                yield from self.finish()

    def finish(self, *, is_marked: bool = False) -> Iterator[StreamEvent]:
        """The end, after a reason."""
        del is_marked
        if self._is_started and self._reason is not None and not self._is_ended:
            self._is_ended = True
            yield StreamEnd(self._reason, self._usage)


# --- writing -----------------------------------------------------------------------------------


def _tool(tool: Any, adapted: Adapted) -> dict[str, Any]:
    if isinstance(tool, Tool):
        return described(tool, keeps_strict=True, name="input_schema")
    wire = adapted.provider.builtins[tool.name]
    return {"type": wire, "name": tool.name, **(tool.config or {})}


def _row(message: Message) -> dict[str, Any]:
    role = "assistant" if message.role == "assistant" else "user"
    blocks = [block for part in message.parts for block in _blocks(part)]
    if message.role == "developer":
        blocks.insert(0, {"type": "text", "text": "[developer]"})
        texts = [block.get("text") for block in blocks]
        if all(isinstance(text, str) for text in texts):
            blocks = [{"type": "text", "text": "\n".join(map(str, texts))}]
    return {"role": role, "content": blocks}


def _blocks(part: Part) -> Iterator[dict[str, Any]]:
    match part:
        case TextPart() | RefusalPart():
            yield {"type": "text", "text": part.text}
        case ThinkingPart() if part.signature is not None:
            yield {"type": "thinking", "thinking": part.text, "signature": part.signature}
        case ToolCallPart():
            yield {"type": "tool_use", "id": part.id, "name": part.name, "input": part.input}
        case ToolResultPart():
            block = {"type": "tool_result", "tool_use_id": part.id, "content": part.content}
            yield {**block, "is_error": True} if part.is_error else block
        case MediaPart():
            yield {"type": part.type, "source": _source(part)}


def _source(part: MediaPart) -> dict[str, Any]:
    if part.url is not None:
        return {"type": "url", "url": part.url}
    if part.file_id is not None:
        return {"type": "file", "file_id": part.file_id}
    return {"type": "base64", "media_type": part.media_type, "data": part.base64()}


# --- reading -----------------------------------------------------------------------------------


def _begin(place: int, block: Data, *, is_whole: bool) -> Iterator[StreamEvent]:
    match block.get("type"):
        case "text":
            if block.get("text") or is_whole:
                yield TextDelta(text_of(block.get("text")), place)
            for citation in block.get("citations") or ():
                yield from _citation(place, citation)
        case "thinking":
            text, signature = text_of(block.get("thinking")), block.get("signature") or None
            if text or signature:
                yield ThinkingDelta(text, place, signature)
        case "tool_use":
            # In a stream the input comes later, and is an empty object here.
            text = compact(block.get("input") or {}) if is_whole else ""
            yield ToolCallDelta(text, place, block.get("id"), block.get("name"))


def _delta(place: int, delta: Data) -> Iterator[StreamEvent]:
    match delta.get("type"):
        case "text_delta":
            yield TextDelta(text_of(delta["text"]), place)
        case "thinking_delta":
            yield ThinkingDelta(text_of(delta["thinking"]), place)
        case "signature_delta":
            yield ThinkingDelta("", place, text_of(delta["signature"]) or None)
        case "input_json_delta":
            yield ToolCallDelta(text_of(delta["partial_json"]), place)
        case "citations_delta":
            yield from _citation(place, delta["citation"])


def _citation(place: int, data: Data) -> Iterator[StreamEvent]:
    title = data.get("title") or data.get("document_title")
    text = data.get("cited_text")
    if data.get("url") or title or text:
        yield CitationDelta(CitationPart(data.get("url"), title, text), place)


def _reason(value: Any) -> FinishReason:
    return _REASONS.get(value, "stop") if isinstance(value, str) else "stop"


def _usage(data: Data) -> Usage:
    usage = data.get("usage")
    return Usage(
        input_tokens=number_of(usage, "input_tokens"),
        output_tokens=number_of(usage, "output_tokens"),
        cache_read_tokens=number_of(usage, "cache_read_input_tokens"),
        cache_write_tokens=number_of(usage, "cache_creation_input_tokens"),
        reasoning_tokens=number_of(usage, "output_tokens_details", "thinking_tokens"),
    )
