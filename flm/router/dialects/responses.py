"""OpenAI's Responses."""

from collections.abc import Iterator
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
from flm.router.faults import error_of
from flm.router.parts import (
    AudioPart,
    CitationPart,
    DocumentPart,
    ImagePart,
    Part,
    RefusalPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from flm.router.request import Message, Tool
from flm.router.response import (
    CitationDelta,
    FinishReason,
    RefusalDelta,
    StreamEnd,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)

_WIDTH = 1000
"""More content parts than an output item has: a part's place is item * _WIDTH + part."""
_INSTRUCTIONS = "You are a helpful assistant."
"""What a provider that requires instructions gets when there are none."""


class ResponsesDialect:
    """POST /responses."""

    def body(self, adapted: Adapted, *, stream: bool) -> Body:
        """Instructions, input and tools."""
        request = adapted.request
        body: Body = {"model": adapted.model, "stream": stream, **adapted.provider.fixed}
        system = request.system_text
        if system is None and adapted.provider.always_streams:
            system = _INSTRUCTIONS
        if system is not None:
            body["instructions"] = system
        body["input"] = [item for message in request.messages for item in _items(message)]
        if adapted.tools:
            body["tools"] = [_tool(tool, adapted) for tool in adapted.tools]
        return body

    def whole(self, data: Data, provider: str) -> Iterator[StreamEvent]:
        """One response."""
        yield start_of(data)
        if data.get("status") not in ("completed", "incomplete", None):
            raise error_of(provider, {"error": data.get("error") or {"message": "It failed."}})
        raise_error(data, provider)
        for place, item in enumerate(data["output"]):
            yield from _whole_item(place, item)
        yield _end(data)

    def parser(self, provider: str) -> "ResponsesParser":
        """A reader of a stream."""
        return ResponsesParser(provider)


class ResponsesParser:
    """Reads the events of a response; completed, incomplete and failed all end it."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._with_arguments: set[int] = set()

    def feed(self, data: Data) -> Iterator[StreamEvent]:
        """Read one event."""
        kind = text_of(data.get("type"))
        match kind:
            case "response.created":
                response = data["response"]
                yield start_of(response)
            case "response.completed" | "response.incomplete":
                yield _end(data["response"])
            case "response.failed":
                error = data["response"].get("error") or {"message": "The response failed."}
                raise error_of(self._provider, {"error": error})
            case "error":
                raise error_of(self._provider, {"error": data.get("error") or data})
            case _ if kind.startswith("response.output_item."):
                yield from self._item(kind, int(data["output_index"]), data["item"])
            case _:
                if kind.endswith("arguments.delta"):
                    self._with_arguments.add(int(data["output_index"]))
                raise_error(data, self._provider)
                yield from _delta(kind, data)

    def _item(self, kind: str, place: int, item: Data) -> Iterator[StreamEvent]:
        if item.get("type") != "function_call":
            return
        if kind.endswith("added"):
            yield ToolCallDelta("", place * _WIDTH, item.get("call_id"), item.get("name"))
        elif place not in self._with_arguments:
            text = text_of(item.get("arguments"))
            yield ToolCallDelta(text, place * _WIDTH, item.get("call_id"), item.get("name"))

    def finish(self, *, is_marked: bool = False) -> Iterator[StreamEvent]:
        """Nothing: the provider says itself when it has ended."""
        del is_marked
        yield from ()


# --- writing -----------------------------------------------------------------------------------


def _tool(tool: Any, adapted: Adapted) -> dict[str, Any]:
    if isinstance(tool, Tool):
        # Left out, strict would be on here, unlike everywhere else.
        return {
            "type": "function",
            **described(tool, keeps_strict=False),
            "strict": bool(tool.strict),
        }
    wire = adapted.provider.builtins[tool.name]
    details = tool.config or {}
    if wire == "code_interpreter" and "container" not in details:
        details = {**details, "container": {"type": "auto"}}
    return {"type": wire, **details}


def _items(message: Message) -> Iterator[dict[str, Any]]:
    said = [_content(part, message.role) for part in message.parts if _is_said(part)]
    if said:
        yield {"role": message.role, "content": said}
    for part in message.parts:
        if isinstance(part, ToolCallPart):
            yield {
                "type": "function_call",
                "call_id": part.id,
                "name": part.name,
                "arguments": compact(part.input),
            }
        elif isinstance(part, ToolResultPart):
            text = f"[error] {part.content}" if part.is_error else part.content
            yield {"type": "function_call_output", "call_id": part.id, "output": text}


def _is_said(part: Part) -> bool:
    return isinstance(part, TextPart | RefusalPart | ImagePart | DocumentPart | AudioPart)


def _content(part: Part, role: str) -> dict[str, Any]:
    match part:
        case RefusalPart():
            return {"type": "refusal", "refusal": part.text}
        case TextPart():
            kind = "output_text" if role == "assistant" else "input_text"
            return {"type": kind, "text": part.text}
        case ImagePart():
            image: dict[str, Any] = {"type": "input_image", "detail": part.detail or "auto"}
            if part.file_id is not None:
                return {**image, "file_id": part.file_id}
            return {**image, "image_url": part.data_url()}
        case DocumentPart():
            if part.file_id is not None:
                return {"type": "input_file", "file_id": part.file_id}
            if part.url is not None:
                return {"type": "input_file", "file_url": part.url}
            file = {"filename": "document.pdf", "file_data": part.data_url()}
            return {"type": "input_file", **file}
        case AudioPart():
            kind = (part.media_type or "").rpartition("/")[2]
            audio = {"data": part.base64(), "format": "mp3" if kind == "mpeg" else kind}
            return {"type": "input_audio", "input_audio": audio}
    raise AssertionError(f"a {part.type} came past the table of media")


# --- reading -----------------------------------------------------------------------------------


def _whole_item(place: int, item: Data) -> Iterator[StreamEvent]:
    base = place * _WIDTH
    match item.get("type"):
        case "message":
            for inner, part in enumerate(item.get("content") or ()):
                if part.get("type") == "refusal":
                    yield RefusalDelta(text_of(part["refusal"]), base + inner)
                elif part.get("type") == "output_text":
                    scores = openai_logprobs(part.get("logprobs"))
                    yield TextDelta(text_of(part["text"]), base + inner, scores)
                for note in part.get("annotations") or ():
                    yield from _citation(base + inner, note)
        case "reasoning":
            shown = item.get("summary") or item.get("content") or ()
            for inner, part in enumerate(shown):
                yield ThinkingDelta(text_of(part.get("text")), base + inner)
        case "function_call":
            text = text_of(item.get("arguments"))
            yield ToolCallDelta(text, base, item.get("call_id"), item.get("name"))


def _delta(kind: str, data: Data) -> Iterator[StreamEvent]:
    base = int(data.get("output_index") or 0) * _WIDTH
    inner = base + int(data.get("content_index") or data.get("summary_index") or 0)
    match kind:
        case "response.output_text.delta":
            yield TextDelta(text_of(data["delta"]), inner, openai_logprobs(data.get("logprobs")))
        case "response.refusal.delta":
            yield RefusalDelta(text_of(data["delta"]), inner)
        case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
            yield ThinkingDelta(text_of(data["delta"]), inner)
        case "response.function_call_arguments.delta":
            yield ToolCallDelta(text_of(data["delta"]), base)
        case "response.output_text.annotation.added":
            yield from _citation(inner, data["annotation"])


def _citation(place: int, note: Data) -> Iterator[StreamEvent]:
    title = note.get("title") or note.get("filename")
    if note.get("url") or title:
        yield CitationDelta(CitationPart(note.get("url"), title), place)


def _end(response: Data) -> StreamEnd:
    reason: FinishReason = "stop"
    if response.get("status") == "incomplete":
        why = text_of((response.get("incomplete_details") or {}).get("reason"))
        is_filtered = "content_filter" in why or "safety" in why
        reason = "content_filter" if is_filtered else "length"
    usage = response.get("usage")
    return StreamEnd(
        reason,
        Usage(
            input_tokens=number_of(usage, "input_tokens"),
            output_tokens=number_of(usage, "output_tokens"),
            total_tokens=number_of(usage, "total_tokens"),
            cache_read_tokens=number_of(usage, "input_tokens_details", "cached_tokens"),
            reasoning_tokens=number_of(usage, "output_tokens_details", "reasoning_tokens"),
        ),
    )
