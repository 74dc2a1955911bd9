"""The messages of Anthropic's dialect: blocks of content, and what chat templates read of them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from flm.server.schemas.types import Schema

CacheControl = dict[str, Any] | None
"""Asks for the prompt so far to be cached, which every prompt is."""


class TextBlock(Schema):
    """A piece of text."""

    type: Literal["text"]
    text: str
    cache_control: CacheControl = None


class ThinkingBlock(Schema):
    """Thoughts of an earlier reply. Nobody checks the signature here."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(Schema):
    """Encrypted thoughts of a model of Anthropic's."""

    type: Literal["redacted_thinking"]
    data: str


class ToolUseBlock(Schema):
    """A call the assistant made earlier."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]
    caller: dict[str, Any] | None = None
    cache_control: CacheControl = None


def _content_kind(value: Any) -> str | None:
    if isinstance(value, str):
        return "string"
    return "blocks" if isinstance(value, list) else None


_EITHER = Discriminator(
    _content_kind,
    custom_error_type="content_type",
    custom_error_message="must be a string or an array of content blocks",
)


Text = Annotated[Annotated[str, Tag("string")] | Annotated[list[TextBlock], Tag("blocks")], _EITHER]
"""Text alone."""


class ToolResultBlock(Schema):
    """What a tool answered."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: Text | None = None
    is_error: bool | None = None
    cache_control: CacheControl = None


class SystemBlock(Schema):
    """Instructions that stand between other blocks."""

    type: Literal["mid_conv_system"]
    content: list[TextBlock]
    cache_control: CacheControl = None


_UserBlock = Annotated[TextBlock | ToolResultBlock | SystemBlock, Field(discriminator="type")]
_AssistantBlock = Annotated[
    TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock, Field(discriminator="type")
]

_UserContent = Annotated[
    Annotated[str, Tag("string")]
    | Annotated[Annotated[list[_UserBlock], Field(min_length=1)], Tag("blocks")],
    _EITHER,
]
_AssistantContent = Annotated[
    Annotated[str, Tag("string")]
    | Annotated[Annotated[list[_AssistantBlock], Field(min_length=1)], Tag("blocks")],
    _EITHER,
]


class UserMessage(Schema):
    """What the user says, and what tools answered."""

    role: Literal["user"]
    content: _UserContent


class AssistantMessage(Schema):
    """An earlier reply, or the beginning of the next one."""

    role: Literal["assistant"]
    content: _AssistantContent


class SystemMessage(Schema):
    """Instructions that come with a turn."""

    role: Literal["system"]
    content: Text


Message = Annotated[UserMessage | AssistantMessage | SystemMessage, Field(discriminator="role")]


# --- as chat templates read them ---------------------------------------------------------------


def as_text(content: str | Sequence[Schema] | None, *, between: str = "") -> str:
    """The text blocks of a content, with ``between`` between them."""
    if content is None or isinstance(content, str):
        return content if content is not None else ""
    return between.join(block.text for block in content if isinstance(block, TextBlock))


def plain_messages(message: Message) -> list[dict[str, Any]]:
    """The messages that ``message`` is in OpenAI's form: a result of a tool is one of its own."""
    match message:
        case AssistantMessage():
            return [_assistant(message)]
        case SystemMessage():
            return [{"role": "system", "content": as_text(message.content)}]
    if isinstance(message.content, str):
        return [{"role": "user", "content": message.content}]
    return list(_joined(_user_block(block) for block in message.content))


def _assistant(message: AssistantMessage) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": "assistant", "content": as_text(message.content)}
    blocks = [] if isinstance(message.content, str) else message.content
    thoughts = [block.thinking for block in blocks if isinstance(block, ThinkingBlock)]
    calls = [_call(block) for block in blocks if isinstance(block, ToolUseBlock)]
    if any(thoughts):
        plain["reasoning_content"] = "".join(thoughts)
    if calls:
        plain["tool_calls"] = calls
    return plain


def _call(block: ToolUseBlock) -> dict[str, Any]:
    function = {"name": block.name, "arguments": block.input}
    return {"id": block.id, "type": "function", "function": function}


def _user_block(block: TextBlock | ToolResultBlock | SystemBlock) -> dict[str, Any]:
    match block:
        case TextBlock():
            return {"role": "user", "content": block.text}
        case SystemBlock():
            return {"role": "system", "content": as_text(block.content)}
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": _result(block)}


def _result(block: ToolResultBlock) -> str:
    """What a tool answered. Templates know no errors; the word is what tells the model of one."""
    text = as_text(block.content)
    is_told = not block.is_error or text.lstrip().lower().startswith("error")
    return text if is_told else f"Error: {text}"


def _joined(messages: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Text blocks that follow each other are one message."""
    text: list[str] = []
    for message in messages:
        if message["role"] == "user":
            text.append(message["content"])
            continue
        if text:
            yield {"role": "user", "content": "".join(text)}
        text = []
        yield message
    if text:
        yield {"role": "user", "content": "".join(text)}
