"""Items of the Responses API as the messages that chat templates read."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from flm.server.schemas.open_responses_items import Item


@dataclass(frozen=True, slots=True)
class Said:
    """A message in OpenAI's chat form, and the index of the item that it begins with."""

    message: dict[str, Any]
    place: int


def messages_of(items: Iterable[Item]) -> list[Said]:
    """The messages that ``items`` make. What the assistant thought, said and called in one go is
    one message."""
    found: list[Said] = []
    for place, item in enumerate(items):
        before = found[-1].message if found else {}
        if not _goes_on(before, item):
            found.append(Said(_begun(item), place))
            before = found[-1].message
        _add(before, item)
    return found


def _goes_on(message: dict[str, Any], item: Item) -> bool:
    """True when ``item`` belongs to the assistant's message in front of it."""
    if message.get("role") != "assistant":
        return False
    if item["type"] == "function_call":
        return True
    is_begun = bool(message["content"]) or "tool_calls" in message
    if item["type"] == "reasoning":
        return not is_begun
    return item["type"] == "message" and item["role"] == "assistant" and not is_begun


def _begun(item: Item) -> dict[str, Any]:
    if item["type"] == "function_call_output":
        return {"role": "tool", "tool_call_id": item["call_id"], "content": ""}
    return {"role": item.get("role", "assistant"), "content": ""}


def _add(message: dict[str, Any], item: Item) -> None:
    match item["type"]:
        case "message":
            message["content"] = text_of(item["content"])
        case "function_call_output":
            message["content"] = text_of(item["output"])
        case "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            message.setdefault("tool_calls", []).append(call)
        case "reasoning":
            # A summary is all there is of what another server kept to itself.
            thought = text_of(item.get("content") or item["summary"])
            if thought:
                message["reasoning_content"] = message.get("reasoning_content", "") + thought


def text_of(content: str | Sequence[Item]) -> str:
    """The text of a content; parts are joined without a separator."""
    if isinstance(content, str):
        return content
    return "".join(part["refusal" if part["type"] == "refusal" else "text"] for part in content)
