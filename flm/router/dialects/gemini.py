"""Google's Gemini."""

from collections.abc import Iterator
from typing import Any

from flm.router.adapt import Adapted, Body
from flm.router.dialects.base import Data, compact, described, number_of, raise_error, text_of
from flm.router.errors import InvalidRequestError
from flm.router.parts import (
    MediaPart,
    Part,
    RefusalPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from flm.router.request import BuiltinTool, Message, Tool
from flm.router.response import (
    FinishReason,
    StreamEnd,
    StreamEvent,
    StreamStart,
    TextDelta,
    ThinkingDelta,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from flm.router.spelling import mentions_additional

_BLOCKED = {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"}


class GeminiDialect:
    """POST /models/MODEL:generateContent."""

    def body(self, adapted: Adapted, *, stream: bool) -> Body:
        """System text, contents and tools; the path says whether to stream."""
        del stream
        request = adapted.request
        body: Body = {}
        if request.system_text is not None:
            body["systemInstruction"] = {"parts": [{"text": request.system_text}]}
        names = {
            part.id: part.name
            for message in request.messages
            for part in message.parts_of(ToolCallPart)
        }
        body["contents"] = [_content(message, names) for message in request.messages]
        if adapted.tools:
            body["tools"] = _tools(adapted)
        return body

    def whole(self, data: Data, provider: str) -> Iterator[StreamEvent]:
        """One response, which looks like one event of a stream."""
        parser = self.parser(provider)
        yield from parser.feed(data)
        yield from parser.finish()

    def parser(self, provider: str) -> "GeminiParser":
        """A reader of a stream."""
        return GeminiParser(provider)


class GeminiParser:
    """Reads responses; a stream of them ends when the connection does."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._is_started = False
        self._kind = ""
        self._place = -1
        self._num_calls = 0
        self._reason: FinishReason | None = None
        self._usage = Usage()

    def feed(self, data: Data) -> Iterator[StreamEvent]:
        """Read one response."""
        raise_error(data, self._provider)
        if not self._is_started:
            self._is_started = True
            yield StreamStart(data.get("responseId"), text_of(data.get("modelVersion")))
        if data.get("usageMetadata") is not None:
            self._usage = _usage(data["usageMetadata"])
        self._raise_blocked((data.get("promptFeedback") or {}).get("blockReason"), "The prompt")
        for candidate in (data.get("candidates") or ())[:1]:
            scores = _logprobs(candidate.get("logprobsResult"))
            for part in (candidate.get("content") or {}).get("parts") or ():
                for event in self._part(part, scores):
                    yield event
                    scores = () if isinstance(event, TextDelta) else scores
            reason = candidate.get("finishReason")
            if reason in _BLOCKED:
                self._raise_blocked(reason, "The answer")
            if reason is not None:
                self._reason = "length" if reason == "MAX_TOKENS" else "stop"

    def _part(self, part: Data, scores: tuple[TokenLogprob, ...]) -> Iterator[StreamEvent]:
        signature = part.get("thoughtSignature") or None
        if part.get("functionCall") is not None:
            call = part["functionCall"]
            place = self._next_place("")
            identity = call.get("id") or f"tool_call_{self._num_calls}"
            self._num_calls += 1
            text = compact(call.get("args") or {})
            yield ToolCallDelta(text, place, identity, text_of(call["name"]), signature)
        elif part.get("text") is not None:
            if part.get("thought"):
                yield ThinkingDelta(text_of(part["text"]), self._next_place("thinking"), signature)
            else:
                yield TextDelta(text_of(part["text"]), self._next_place("text"), scores)

    def _next_place(self, kind: str) -> int:
        if kind != self._kind or not kind:
            self._place += 1
        self._kind = kind
        return self._place

    def _raise_blocked(self, reason: Any, what: str) -> None:
        if reason is not None:
            raise InvalidRequestError(
                f"{what} was blocked by {self._provider} ({reason}). Change the messages.",
                code="content_filter",
                provider=self._provider,
                provider_code=str(reason),
            )

    def finish(self, *, is_marked: bool = False) -> Iterator[StreamEvent]:
        """The end, after a reason."""
        del is_marked
        if self._is_started and self._reason is not None:
            yield StreamEnd(self._reason, self._usage)


# --- writing -----------------------------------------------------------------------------------


def _tools(adapted: Adapted) -> list[dict[str, Any]]:
    functions = [_function(tool) for tool in adapted.tools if isinstance(tool, Tool)]
    found: list[dict[str, Any]] = [{"functionDeclarations": functions}] if functions else []
    found += [
        {adapted.provider.builtins[tool.name]: tool.config or {}}
        for tool in adapted.tools
        if isinstance(tool, BuiltinTool)
    ]
    return found


def _function(tool: Tool) -> dict[str, Any]:
    is_newer = mentions_additional(tool.parameters)
    name = "parametersJsonSchema" if is_newer else "parameters"
    return described(tool, keeps_strict=False, name=name)


def _content(message: Message, names: dict[str, str]) -> dict[str, Any]:
    role = "model" if message.role == "assistant" else "user"
    parts = [item for part in message.parts for item in _parts(part, names)]
    if message.role == "developer":
        texts = ["[developer]", *(item["text"] for item in parts if "text" in item)]
        others = [item for item in parts if "text" not in item]
        parts = [{"text": "\n".join(texts)}, *others]
    return {"role": role, "parts": parts}


def _parts(part: Part, names: dict[str, str]) -> Iterator[dict[str, Any]]:
    match part:
        case TextPart() | RefusalPart():
            yield {"text": part.text}
        case ThinkingPart() if part.signature is not None:
            yield {"text": part.text, "thought": True, "thoughtSignature": part.signature}
        case ToolCallPart():
            call = {"functionCall": {"name": part.name, "args": part.input}}
            yield {**call, "thoughtSignature": part.signature} if part.signature else call
        case ToolResultPart():
            key = "error" if part.is_error else "result"
            name = part.name or names.get(part.id) or part.id
            yield {"functionResponse": {"name": name, "response": {key: part.content}}}
        case MediaPart():
            yield _media(part)


def _media(part: MediaPart) -> dict[str, Any]:
    if part.form == "data":
        return {"inlineData": {"mimeType": part.media_type, "data": part.base64()}}
    return {"fileData": {"mimeType": part.media_type, "fileUri": part.url or part.file_id}}


# --- reading -----------------------------------------------------------------------------------


def _logprobs(result: Any) -> tuple[TokenLogprob, ...]:
    if not result:
        return ()
    tops = result.get("topCandidates") or ()
    return tuple(
        TokenLogprob(
            text_of(chosen.get("token")),
            float(chosen["logProbability"]),
            tuple(
                TokenLogprob(text_of(other.get("token")), float(other["logProbability"]))
                for other in (tops[place].get("candidates") or () if place < len(tops) else ())
            ),
        )
        for place, chosen in enumerate(result.get("chosenCandidates") or ())
    )


def _usage(usage: Any) -> Usage:
    written = number_of(usage, "candidatesTokenCount")
    return Usage(
        input_tokens=number_of(usage, "promptTokenCount"),
        output_tokens=written if written is not None else 0,
        total_tokens=number_of(usage, "totalTokenCount"),
        cache_read_tokens=number_of(usage, "cachedContentTokenCount"),
        reasoning_tokens=number_of(usage, "thoughtsTokenCount"),
    )
