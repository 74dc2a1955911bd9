"""The items of a conversation, as OpenAI's Responses API has them."""

import secrets
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    Tag,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from flm.server.schemas.messages import RefusalPart
from flm.server.schemas.types import Schema

Item = Mapping[str, Any]
"""An item as JSON values, with every key that items of its type have."""

_UNSEEN = {
    "input_image": "an image",
    "input_file": "a file",
    "input_audio": "sound",
    "input_video": "a video",
}


class TextPart(Schema):
    """A piece of text, whoever said it."""

    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


def _readable(part: Any) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(kind, str) and kind in _UNSEEN:
        raise PydanticCustomError(
            "unseen_part",
            "is {what} ({kind}), and the models here read text only",
            {"what": _UNSEEN[kind], "kind": kind},
        )
    return part


def _content_kind(value: Any) -> str | None:
    if isinstance(value, str):
        return "string"
    return "parts" if isinstance(value, list) else None


_Part = Annotated[
    Annotated[TextPart | RefusalPart, Field(discriminator="type")], BeforeValidator(_readable)
]
Content = Annotated[
    Annotated[str, Tag("string")] | Annotated[list[_Part], Tag("parts")],
    Discriminator(
        _content_kind,
        custom_error_type="content_type",
        custom_error_message="must be a string or an array of text parts",
    ),
]


def _type_or_null(kind: str) -> WithJsonSchema:
    return WithJsonSchema({"enum": [kind, None]})


class MessageItem(Schema):
    """A message. Without a type it is one too."""

    type: Annotated[Literal["message"], _type_or_null("message")] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class CallItem(Schema):
    """A call that the model made earlier; ``arguments`` is JSON text."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: str | None = None


class CallOutputItem(Schema):
    """What a called function gave back."""

    type: Literal["function_call_output"]
    call_id: str
    output: Content
    id: str | None = None
    status: str | None = None


class ReasoningText(Schema):
    """A piece of reasoning, or of a summary of it."""

    type: Literal["reasoning_text", "summary_text", "text"]
    text: str


class ReasoningItem(Schema):
    """What the model thought earlier. Without ``content`` its summary stands for it."""

    type: Literal["reasoning"]
    summary: list[ReasoningText] | None = None
    content: list[ReasoningText] | None = None
    encrypted_content: str | None = None
    id: str | None = None
    status: str | None = None


class ItemReference(Schema):
    """An item of a reply that is kept."""

    type: Annotated[Literal["item_reference"], _type_or_null("item_reference")] = "item_reference"
    id: str


def _with_type(value: Any) -> Any:
    """Messages and references may come without their type."""
    if not isinstance(value, dict) or value.get("type") is not None:
        return value
    if "role" in value:
        return {**value, "type": "message"}
    return {**value, "type": "item_reference"} if "id" in value else value


class _AnyOf:
    """Documents a union as ``anyOf``: where no type is said, an item may fit two members."""

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        return {"anyOf": schema["oneOf"]}


InputItem = MessageItem | CallItem | CallOutputItem | ReasoningItem | ItemReference
AnyItem = Annotated[
    Annotated[InputItem, Field(discriminator="type")], BeforeValidator(_with_type), _AnyOf()
]


def new_id(prefix: str) -> str:
    """An id that nothing else has."""
    return prefix + secrets.token_hex(24)


_PREFIXES = {
    "message": "msg_",
    "function_call": "fc_",
    "function_call_output": "fco_",
    "reasoning": "rs_",
}


def as_item(item: MessageItem | CallItem | CallOutputItem | ReasoningItem) -> Item:
    """``item`` with every key, as the API gives it back."""
    kind = item.type
    status = item.status if item.status is not None else "completed"
    head = {"id": item.id if item.id is not None else new_id(_PREFIXES[kind]), "type": kind}
    if isinstance(item, MessageItem):
        is_said = item.role == "assistant"
        phase = {} if item.phase is None else {"phase": item.phase}
        content = _parts(item.content, is_said=is_said)
        return {**head, "status": status, "role": item.role, "content": content, **phase}
    if isinstance(item, ReasoningItem):
        return {
            **head,
            "summary": _texts(item.summary, "summary_text"),
            "content": _texts(item.content, "reasoning_text"),
        }
    if isinstance(item, CallItem):
        call = {"call_id": item.call_id, "name": item.name, "arguments": item.arguments}
        return {**head, "status": status, **call}
    is_text = isinstance(item.output, str)
    output = item.output if is_text else _parts(item.output, is_said=False)
    return {**head, "status": status, "call_id": item.call_id, "output": output}


def with_distinct_ids(items: Iterable[Item]) -> tuple[Item, ...]:
    """``items``, each that has the id of an earlier one under a new id: who pages through them
    goes on behind an id, and must get further."""
    seen: set[str] = set()
    found: list[Item] = []
    for item in items:
        is_taken = item["id"] in seen
        found.append({**item, "id": new_id(_PREFIXES[item["type"]])} if is_taken else item)
        seen.add(found[-1]["id"])
    return tuple(found)


def user_message(text: str) -> Item:
    """The message that an input of plain text is."""
    return as_item(MessageItem(role="user", content=text))


def output_text(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    """A part of what a model said."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def _parts(content: str | list[TextPart | RefusalPart], *, is_said: bool) -> list[dict[str, Any]]:
    parts = [TextPart(type="text", text=content)] if isinstance(content, str) else content
    return [_part(part, is_said=is_said) for part in parts]


def _part(part: TextPart | RefusalPart, *, is_said: bool) -> dict[str, Any]:
    if isinstance(part, RefusalPart):
        return {"type": "refusal", "refusal": part.refusal}
    if is_said:
        return output_text(part.text, [])
    return {"type": "input_text", "text": part.text}


def _texts(parts: list[ReasoningText] | None, kind: str) -> list[dict[str, Any]]:
    return [{"type": kind, "text": part.text} for part in parts or ()]
