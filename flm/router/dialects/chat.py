"""OpenAI's chat completions, which most servers speak."""

from collections.abc import Iterator, Mapping
from typing import Any

from flm.router.adapt import Adapted, Body
from flm.router.dialects.base import (
    Data,
    compact,
    described,
    number_of,
    openai_logprobs,
    raise_error,
    start_of,
    text_of,
)
from flm.router.parts import (
    DocumentPart,
    ImagePart,
    Part,
    RefusalPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from flm.router.request import Message, Tool
from flm.router.response import (
    FinishReason,
    RefusalDelta,
    StreamEnd,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)

_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_call",
    "function_call": "tool_call",
    "content_filter": "content_filter",
    "error": "error",
}
_THINKING, _TEXT, _REFUSAL, _CALLS = 0, 1, 2, 3
"""Places of the parts in a message."""


class ChatDialect:
    """POST /chat/completions."""

    def body(self, adapted: Adapted, *, stream: bool) -> Body:
        """Messages, tools, and whether to stream."""
        request = adapted.request
        rows: list[dict[str, Any]] = []
        if request.system_text is not None:
            rows.append({"role": "system", "content": request.system_text})
        for message in request.messages:
            rows += _rows(message, adapted.provider.thinking_field)
        body: Body = {"model": adapted.model, "messages": rows}
        if adapted.tools:
            body["tools"] = [_tool(tool, adapted) for tool in adapted.tools]
        if stream:
            body["stream"] = True
            if adapted.provider.stream_usage:
                body["stream_options"] = {"include_usage": True}
        return body

    def whole(self, data: Data, provider: str) -> Iterator[StreamEvent]:
        """One reply."""
        raise_error(data, provider)
        yield start_of(data)
        choice = data["choices"][0]
        yield from _deltas(choice, choice["message"])
        yield StreamEnd(_reason(choice.get("finish_reason")), _usage(data))

    def parser(self, provider: str) -> "ChatParser":
        """A reader of chunks."""
        return ChatParser(provider)


class ChatParser:
    """Reads chunks. The end waits for the mark or the close: counts come after the reason."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._is_started = False
        self._reason: FinishReason | None = None
        self._usage = Usage()

    def feed(self, data: Data) -> Iterator[StreamEvent]:
        """Read one chunk."""
        raise_error(data, self._provider)
        if not self._is_started:
            self._is_started = True
            yield start_of(data)
        self._usage = self._usage.updated(_usage(data))
        for choice in data.get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            yield from _deltas(choice, choice.get("delta") or {})
            if choice.get("finish_reason") is not None:
                self._reason = _reason(choice["finish_reason"])

    def finish(self, *, is_marked: bool = False) -> Iterator[StreamEvent]:
        """The end, after a reason or the mark."""
        if self._is_started and (self._reason is not None or is_marked):
            yield StreamEnd(self._reason or "stop", self._usage)


# --- writing -----------------------------------------------------------------------------------


def _tool(tool: Any, adapted: Adapted) -> dict[str, Any]:
    if isinstance(tool, Tool):
        keeps = adapted.provider.strict_tools
        return {"type": "function", "function": described(tool, keeps_strict=keeps)}
    return {"type": adapted.provider.builtins[tool.name], **(tool.config or {})}


def _rows(message: Message, thinking_field: str) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [_result(part) for part in message.parts_of(ToolResultPart)]
    if message.role == "developer":
        return [{"role": "system", "content": _content(message.parts)}]
    if message.role == "user":
        return [{"role": "user", "content": _content(message.parts)}]
    spoken = tuple(part for part in message.parts if isinstance(part, TextPart | RefusalPart))
    row: dict[str, Any] = {"role": "assistant", "content": _content(spoken) if spoken else None}
    thoughts = message.parts_of(ThinkingPart)
    if thoughts and thinking_field:
        row[thinking_field] = "".join(part.text for part in thoughts)
    calls = message.parts_of(ToolCallPart)
    if calls:
        row["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": compact(call.input)},
            }
            for call in calls
        ]
    if row["content"] is None and not calls:
        row["content"] = ""
    return [row]


def _result(part: ToolResultPart) -> dict[str, Any]:
    text = f"[error] {part.content}" if part.is_error else part.content
    return {"role": "tool", "tool_call_id": part.id, "content": text}


def _content(parts: tuple[Part, ...]) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and isinstance(parts[0], TextPart | RefusalPart):
        return parts[0].text
    return [_part(part) for part in parts]


def _part(part: Part) -> dict[str, Any]:
    match part:
        case ImagePart():
            image = {"url": part.data_url()}
            if part.detail is not None:
                image["detail"] = part.detail
            return {"type": "image_url", "image_url": image}
        case DocumentPart():
            if part.file_id is not None:
                return {"type": "file", "file": {"file_id": part.file_id}}
            file = {"filename": "document.pdf", "file_data": part.data_url()}
            return {"type": "file", "file": file}
        case TextPart() | RefusalPart():
            return {"type": "text", "text": part.text}
    raise AssertionError(f"a {part.type} came past the table of media")


# --- reading -----------------------------------------------------------------------------------


def _deltas(choice: Data, message: Data) -> Iterator[StreamEvent]:
    thought = message.get("reasoning_content") or message.get("reasoning")
    if thought:
        yield ThinkingDelta(text_of(thought), _THINKING)
    yield from _content_deltas(message.get("content"), choice.get("logprobs"))
    if message.get("refusal"):
        yield RefusalDelta(text_of(message["refusal"]), _REFUSAL)
    for place, call in enumerate(message.get("tool_calls") or ()):
        function = call.get("function") or {}
        yield ToolCallDelta(
            _arguments(function.get("arguments")),
            _CALLS + int(call.get("index") if call.get("index") is not None else place),
            call.get("id") or None,
            function.get("name") or None,
        )


def _content_deltas(content: Any, logprobs: Any) -> Iterator[StreamEvent]:
    if isinstance(content, list):
        # Mistral's reasoning models answer in parts.
        for part in content:
            if part.get("type") == "thinking":
                inner = part.get("thinking") or ()
                yield ThinkingDelta("".join(text_of(item.get("text")) for item in inner), _THINKING)
            else:
                yield TextDelta(text_of(part.get("text")), _TEXT)
        return
    scores = openai_logprobs((logprobs or {}).get("content"))
    if content or scores:
        yield TextDelta(text_of(content), _TEXT, scores)


def _arguments(value: Any) -> str:
    # Some servers send the object itself.
    return compact(value) if isinstance(value, dict) else text_of(value)


def _reason(value: Any) -> FinishReason:
    return _REASONS.get(value, "stop") if isinstance(value, str) else "stop"


def _usage(data: Data) -> Usage:
    usage = data.get("usage")
    return Usage(
        input_tokens=number_of(usage, "prompt_tokens"),
        output_tokens=number_of(usage, "completion_tokens"),
        total_tokens=number_of(usage, "total_tokens"),
        cache_read_tokens=number_of(usage, "prompt_tokens_details", "cached_tokens"),
        reasoning_tokens=number_of(usage, "completion_tokens_details", "reasoning_tokens"),
    )
