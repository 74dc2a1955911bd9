"""A whole reply as the fold of a stream's events."""

from flm.adaptation import Adaptation
from flm.router.parts import Part, RefusalPart, TextPart, ThinkingPart, ToolCallPart
from flm.router.response import (
    CitationDelta,
    Delta,
    FinishReason,
    RefusalDelta,
    Response,
    StreamEnd,
    StreamEvent,
    StreamStart,
    TextDelta,
    ThinkingDelta,
    TokenLogprob,
    ToolCallDelta,
    Usage,
    fold_message,
    read_arguments,
)


class Assembler:
    """Gathers the events of one stream."""

    def __init__(self, *, wants_logprobs: bool = False) -> None:
        self._wants_logprobs = wants_logprobs
        self._start: StreamStart | None = None
        self._end: StreamEnd | None = None
        self._deltas: dict[int, list[Delta]] = {}
        self._logprobs: list[TokenLogprob] = []
        self._is_scored = True

    @property
    def is_empty(self) -> bool:
        """True while no event has come."""
        return self._start is None

    def feed(self, event: StreamEvent) -> None:
        """Take one event."""
        if isinstance(event, StreamStart):
            self._start = event
        elif isinstance(event, StreamEnd):
            self._end = event
        else:
            self._deltas.setdefault(event.part_index, []).append(event)
            if isinstance(event, TextDelta):
                self._logprobs += event.logprobs
                self._is_scored = self._is_scored and (bool(event.logprobs) or not event.text)

    def response(self) -> Response:
        """What has come so far; without an end the finish reason is ``error``.

        Raises:
            TypeError: an event is not what its type says.
            ValueError: likewise.
        """
        parts = [part for place in sorted(self._deltas) for part in self._parts(place)]
        calls = any(isinstance(part, ToolCallPart) for part in parts)
        reason: FinishReason = self._end.finish_reason if self._end is not None else "error"
        start = self._start
        adaptations: tuple[Adaptation, ...] = start.adaptations if start is not None else ()
        has_scores = self._wants_logprobs and bool(self._logprobs)
        return Response(
            id=start.id if start is not None else None,
            model=start.model if start is not None else "",
            message=fold_message(parts),
            finish_reason="tool_call" if calls and reason == "stop" else reason,
            usage=self._end.usage if self._end is not None else Usage(),
            adaptations=adaptations,
            logprobs=tuple(self._logprobs) if has_scores else None,
            logprobs_complete=self._is_scored or not has_scores,
        )

    def _parts(self, place: int) -> list[Part]:
        deltas = self._deltas[place]
        thoughts = [item for item in deltas if isinstance(item, ThinkingDelta)]
        texts = [item for item in deltas if isinstance(item, TextDelta)]
        refusals = "".join(item.text for item in deltas if isinstance(item, RefusalDelta))
        parts: list[Part] = []
        if thoughts:
            signature = "".join(item.signature or "" for item in thoughts) or None
            parts.append(ThinkingPart("".join(item.text for item in thoughts), signature))
        if texts:
            parts.append(TextPart("".join(item.text for item in texts)))
        if refusals:
            parts.append(RefusalPart(refusals))
        parts += [item.citation for item in deltas if isinstance(item, CitationDelta)]
        return parts + self._calls(place)

    def _calls(self, place: int) -> list[Part]:
        deltas = [item for item in self._deltas[place] if isinstance(item, ToolCallDelta)]
        if not deltas:
            return []
        name = next((item.name for item in deltas if item.name), None)
        if name is None:
            raise ValueError("a tool call has no name")
        identity = next((item.id for item in deltas if item.id), None)
        text = "".join(item.arguments for item in deltas)
        signature = next((item.signature for item in deltas if item.signature), None)
        call = identity if identity is not None else f"tool_call_{place}"
        return [ToolCallPart(call, name, read_arguments(text), signature)]
