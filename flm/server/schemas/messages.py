"""The messages of a chat request."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from flm.server.schemas.types import Schema, declared


class TextPart(Schema):
    """A piece of text."""

    type: Literal["text"]
    text: str


class RefusalPart(Schema):
    """A piece of an earlier refusal."""

    type: Literal["refusal"]
    refusal: str


def _content_kind(value: Any) -> str | None:
    if isinstance(value, str):
        return "string"
    return "parts" if isinstance(value, list) else None


_EITHER = Discriminator(
    _content_kind,
    custom_error_type="content_type",
    custom_error_message="must be a string or an array of text parts",
)
_Part = Annotated[TextPart | RefusalPart, Field(discriminator="type")]
# A union needs two members for its tag; other part types are for models that can see or hear.
_Parts = Annotated[list[_Part], Field(min_length=1)]
Content = Annotated[Annotated[str, Tag("string")] | Annotated[_Parts, Tag("parts")], _EITHER]


class CalledFunction(Schema):
    """A function and its arguments: a string of JSON, or the object itself."""

    name: str
    arguments: str | dict[str, Any]


class ToolCall(Schema):
    """A call the assistant made earlier."""

    id: str | None = None
    type: Literal["function"] | None = None
    index: int | None = None
    function: CalledFunction


class SystemMessage(Schema):
    """Instructions."""

    role: Literal["system", "developer"]
    content: Content
    name: str | None = None


class UserMessage(Schema):
    """What the user says."""

    role: Literal["user"]
    content: Content
    name: str | None = None


class AssistantMessage(Schema):
    """An earlier reply. One of content, refusal, reasoning_content and tool_calls must be there."""

    role: Literal["assistant"]
    content: Content | None = None
    refusal: str | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None


class ToolMessage(Schema):
    """What a tool answered."""

    role: Literal["tool"]
    content: Content
    tool_call_id: str | None = None
    name: str | None = None


Message = Annotated[
    SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")
]


def as_text(content: str | Sequence[TextPart | RefusalPart] | None) -> str:
    """The text of a content; parts are joined without a separator."""
    if content is None or isinstance(content, str):
        return content if content is not None else ""
    return "".join(part.text if isinstance(part, TextPart) else part.refusal for part in content)


def as_plain(message: Message) -> dict[str, Any]:
    """A message as chat templates read it: ``content`` is a string, absent keys are left out."""
    plain = declared(message)
    # OpenAI puts what the model refused with beside content; it is what was said all the same.
    refusal = plain.pop("refusal", "")
    return {"role": plain.pop("role"), **plain, "content": as_text(message.content) + refusal}
