"""Messages as a request has them, made into messages as chat templates expect them. Pure.

The order of the rules is the order of ``normalise``: text parts are joined, developer is shown as
system, an assistant's earlier reasoning is left out, neighbours of one role are merged.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flm.errors import InvalidRequestError

SEPARATOR = "\n\n"
"""Stands between two messages that were merged: they were two paragraphs of one speaker."""
_REASONING_KEYS = frozenset({"thinking", "reasoning", "reasoning_content"})
_MERGED_ROLES = frozenset({"user", "system"})

Message = dict[str, Any]


def normalise(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Messages with string contents, without None values, neighbours merged.

    Raises:
        InvalidRequestError: a message is no object, or its content is neither text nor a list of
            text parts.
    """
    return merged(_normal(index, message) for index, message in enumerate(messages))


def merged(messages: Iterable[Message]) -> list[Message]:
    """Consecutive user messages as one, and consecutive system messages as one.

    Speakers with different names stay apart.
    """
    runs: list[list[Message]] = []
    for message in messages:
        if runs and _is_same_speaker(runs[-1][0], message):
            runs[-1].append(message)
        else:
            runs.append([message])
    return [_one(run) for run in runs]


def fold_system(messages: Sequence[Message]) -> list[Message]:
    """System text put at the head of the user message that follows it, for templates that know
    no system role. Without one, it becomes a user message."""
    result: list[Message] = []
    held: list[str] = []
    for message in messages:
        if message["role"] == "system":
            held.append(message["content"])
        elif held and message["role"] == "user":
            content = SEPARATOR.join(part for part in (*held, message["content"]) if part)
            result.append({**message, "content": content})
            held = []
        else:
            result.append(message)
    if held:
        result.append({"role": "user", "content": SEPARATOR.join(held)})
    return merged(result)


def with_string_arguments(messages: Sequence[Message]) -> list[Message]:
    """Tool calls with their arguments as JSON text, for templates that print them as they are."""
    return [_map_calls(message, _arguments_as_text) for message in messages]


def with_short_ids(messages: Sequence[Message]) -> list[Message]:
    """Tool calls and results under ids of nine letters and digits, which is all that the templates
    of some models accept. The same id always becomes the same."""
    return [_with_short_ids(message) for message in messages]


def _with_short_ids(message: Message) -> Message:
    changed = dict(message)
    if isinstance(message.get("tool_call_id"), str):
        changed["tool_call_id"] = _short_id(message["tool_call_id"])
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        changed["tool_calls"] = [
            {**call, "id": _short_id(call["id"])} if isinstance(call.get("id"), str) else call
            for call in calls
        ]
    return changed


def _short_id(text: str) -> str:
    if len(text) == 9 and text.isascii() and text.isalnum():
        return text
    return hashlib.blake2s(text.encode("utf-8", "surrogatepass")).hexdigest()[:9]


# --- one message -------------------------------------------------------------------------------


def _normal(index: int, message: Mapping[str, Any]) -> Message:
    if not isinstance(message, Mapping):
        raise InvalidRequestError("A message must be an object.", param=f"messages[{index}]")
    role = message.get("role")
    if not isinstance(role, str):
        raise InvalidRequestError("A message must have a role.", param=f"messages[{index}].role")
    role = "system" if role == "developer" else role
    dropped = _REASONING_KEYS if role == "assistant" else frozenset[str]()
    kept = {
        key: value for key, value in message.items() if value is not None and key not in dropped
    }
    content = _text(message.get("content"), f"messages[{index}].content")
    return _map_calls({**kept, "role": role, "content": content}, _arguments_as_object)


def _text(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise InvalidRequestError(
            "Message content must be a string or a list of text parts.", param=where
        )
    return "".join(_part_text(part, f"{where}[{i}]") for i, part in enumerate(content))


def _part_text(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type", "text") if isinstance(part, Mapping) else None
    text = part.get("text") if isinstance(part, Mapping) else None
    if kind != "text" or not isinstance(text, str):
        raise InvalidRequestError(
            f"This model reads text only: a content part must be an object of type 'text' with a "
            f"string 'text', not {kind if isinstance(kind, str) else type(part).__name__!r}.",
            param=where,
        )
    return text


def _one(run: Sequence[Message]) -> Message:
    if len(run) == 1:
        return dict(run[0])
    content = SEPARATOR.join(part["content"] for part in run if part["content"])
    return {**run[0], "content": content}


def _is_same_speaker(one: Message, other: Message) -> bool:
    is_mergeable = one["role"] == other["role"] and one["role"] in _MERGED_ROLES
    return is_mergeable and one.get("name") == other.get("name")


# --- tool calls --------------------------------------------------------------------------------


def _map_calls(message: Message, change: Any) -> Message:
    calls = message.get("tool_calls")
    if not isinstance(calls, list | tuple):
        return message
    return {**message, "tool_calls": [_map_call(call, change) for call in calls]}


def _map_call(call: Any, change: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or "arguments" not in function:
        return call
    return {**call, "function": {**function, "arguments": change(function["arguments"])}}


def _arguments_as_object(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return parsed if isinstance(parsed, dict) else arguments


def _arguments_as_text(arguments: Any) -> Any:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
