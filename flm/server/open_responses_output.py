"""One item of a response's output while it is made."""

from dataclasses import dataclass, field
from typing import Any, Literal

from flm.server.schemas.open_responses_items import new_id, output_text

Kind = Literal["message", "reasoning", "function_call"]
_EVENTS: dict[Kind, str] = {
    "message": "response.output_text",
    "reasoning": "response.reasoning_text",
    "function_call": "response.function_call_arguments",
}


@dataclass(slots=True, eq=False)
class OutputItem:
    """What the model thinks, says or calls. ``name`` and ``call_id`` are those of a call."""

    kind: Kind
    id: str
    name: str = ""
    call_id: str = ""
    status: str = "in_progress"
    _texts: list[str] = field(default_factory=list)
    _logprobs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """True while more may come."""
        return self.status == "in_progress"

    @property
    def event(self) -> str:
        """What its events begin with."""
        return _EVENTS[self.kind]

    @property
    def num_logprobs(self) -> int:
        """Tokens whose log probability it tells."""
        return len(self._logprobs)

    def add(self, text: str, logprobs: list[dict[str, Any]]) -> None:
        """More of it."""
        self._texts.append(text)
        self._logprobs += logprobs

    @property
    def part(self) -> dict[str, Any] | None:
        """Its one part of content so far; None for a call, which has none."""
        text = "".join(self._texts)
        if self.kind == "message":
            return output_text(text, list(self._logprobs))
        return {"type": "reasoning_text", "text": text} if self.kind == "reasoning" else None

    @property
    def whole(self) -> dict[str, Any]:
        """All of it, as the event of its end tells it."""
        text = "".join(self._texts)
        if self.kind == "message":
            return {"text": text, "logprobs": list(self._logprobs)}
        return (
            {"text": text} if self.kind == "reasoning" else {"name": self.name, "arguments": text}
        )

    def to_dict(self) -> dict[str, Any]:
        """The item so far. Content begins to be there when there is some."""
        content = [] if self.is_open else [self.part]
        head = {"id": self.id, "type": self.kind, "status": self.status}
        if self.kind == "message":
            return {**head, "role": "assistant", "content": content}
        if self.kind == "reasoning":
            return {**head, "summary": [], "content": content}
        arguments = "".join(self._texts)
        return {**head, "call_id": self.call_id, "name": self.name, "arguments": arguments}


def message_item() -> OutputItem:
    """A message that begins."""
    return OutputItem("message", new_id("msg_"))


def reasoning_item() -> OutputItem:
    """Thoughts that begin."""
    return OutputItem("reasoning", new_id("rs_"))


def call_item(call_id: str, name: str) -> OutputItem:
    """A call that begins."""
    return OutputItem("function_call", new_id("fc_"), name, call_id)
