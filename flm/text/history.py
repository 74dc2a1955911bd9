"""Messages rewritten for templates that would leave some of them out. Pure.

Nothing here adds or takes away: what a template cannot show where it stands is put where it can.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flm.text.messages import Message, fold_system, merged

Private = Callable[[str], str]
"""A marker's string to the name under which it becomes a control token, if it is one."""


def has_calls(messages: Sequence[Message]) -> bool:
    """True when calls or their results stand in ``messages``."""
    return any(item["role"] == "tool" or item.get("tool_calls") for item in messages)


def fold_late_system(messages: Sequence[Message]) -> list[Message]:
    """System text after the first turn put at the head of the user message that follows it."""
    num_first = next(
        (index for index, item in enumerate(messages) if item["role"] != "system"), len(messages)
    )
    return [*messages[:num_first], *fold_system(messages[num_first:])]


# --- calls and results -------------------------------------------------------------------------


def split_calls(messages: Sequence[Message]) -> list[Message]:
    """One message for each call, its result behind it; the text stays with the first call."""
    shown: list[Message] = []
    for message, results in _turns(messages):
        calls = message.get("tool_calls")
        if not isinstance(calls, list) or len(calls) < 2:
            shown += [message, *results]
            continue
        owners = _owners(calls, results)
        for index, call in enumerate(calls):
            text = message["content"] if index == 0 else ""
            shown.append({**message, "content": text, "tool_calls": [call]})
            shown += [result for result, owner in owners if owner == index]
        shown += [result for result, owner in owners if owner is None]
    return shown


def split_text(messages: Sequence[Message]) -> list[Message]:
    """Text beside calls as a message of its own before them."""
    shown: list[Message] = []
    for message in messages:
        if message.get("tool_calls") and message["content"]:
            shown.append({"role": message["role"], "content": message["content"]})
            message = {**message, "content": ""}
        shown.append(message)
    return shown


def fold_results(messages: Sequence[Message]) -> list[Message]:
    """Results put into the message of their calls, as ``tool_responses`` of name and response."""
    shown: list[Message] = []
    for message, results in _turns(messages):
        calls = message.get("tool_calls")
        if not isinstance(calls, list) or not results:
            shown += [message, *results]
            continue
        responses = [
            {"name": _name(result, calls, owner), "response": _as_object(result["content"])}
            for result, owner in _owners(calls, results)
        ]
        shown.append({**message, "tool_responses": responses})
    return shown


def _turns(messages: Sequence[Message]) -> list[tuple[Message, list[Message]]]:
    """Every message with the results that follow it if it has calls."""
    turns: list[tuple[Message, list[Message]]] = []
    for message in messages:
        if message["role"] == "tool" and turns and turns[-1][0].get("tool_calls"):
            turns[-1][1].append(message)
        else:
            turns.append((message, []))
    return turns


def _owners(calls: Sequence[Any], results: Sequence[Message]) -> list[tuple[Message, int | None]]:
    """Every result with the place of its call: by id, else by name, else by order."""
    free = list(range(len(calls)))
    found: list[tuple[Message, int | None]] = []
    for result in results:
        owner = next((index for index in free if _is_own(calls[index], result)), None)
        if owner is None and not isinstance(result.get("tool_call_id"), str) and free:
            owner = free[0]
        if owner is not None:
            free.remove(owner)
        found.append((result, owner))
    return found


def _is_own(call: Any, result: Message) -> bool:
    if not isinstance(call, Mapping):
        return False
    if isinstance(result.get("tool_call_id"), str):
        return bool(call.get("id") == result["tool_call_id"])
    return result.get("name") is not None and _function(call).get("name") == result["name"]


def _name(result: Message, calls: Sequence[Any], owner: int | None) -> str:
    own = None if owner is None else _function(calls[owner]).get("name")
    name = own if isinstance(own, str) else result.get("name")
    return name if isinstance(name, str) else "unknown"


def _function(call: Any) -> Mapping[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    return function if isinstance(function, Mapping) else {}


def _as_object(text: str) -> Any:
    """A result as the object that it is, else as its text."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return parsed if isinstance(parsed, dict) else text


# --- calls as text -----------------------------------------------------------------------------


def with_calls_as_text(
    messages: Sequence[Message], dialect: str, private: Private, *, results: bool
) -> list[Message]:
    """Calls written into the contents in the model's ``dialect`` (LFM2's, else Hermes').

    ``results``: results too, as messages of the user; else they stay as they are.
    """
    return merged(_as_text(message, dialect, private, results=results) for message in messages)


def with_results_as_text(messages: Sequence[Message]) -> list[Message]:
    """Results as messages of the user."""
    return merged(_result_text(item) if item["role"] == "tool" else item for item in messages)


def _as_text(message: Message, dialect: str, private: Private, *, results: bool) -> Message:
    if message["role"] == "tool":
        return _result_text(message) if results else message
    calls = message.get("tool_calls")
    if not calls:
        return message
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    if dialect == "lfm2":
        listed = ", ".join(map(_python_call, calls))
        begin, end = private("<|tool_call_start|>"), private("<|tool_call_end|>")
        return {**rest, "content": f"{begin}[{listed}]{end}{message['content']}"}
    parts = [message["content"], *map(_hermes_call, calls)]
    return {**rest, "content": "\n".join(part for part in parts if part)}


def _result_text(message: Message) -> Message:
    content = f"<tool_response>\n{message['content']}\n</tool_response>"
    return {"role": "user", "content": content}


def _hermes_call(call: Any) -> str:
    function = _function(call)
    plain = {"name": function.get("name"), "arguments": function.get("arguments", {})}
    return f"<tool_call>\n{json.dumps(plain, ensure_ascii=False)}\n</tool_call>"


def _python_call(call: Any) -> str:
    function = _function(call)
    arguments = function.get("arguments", {})
    if not isinstance(arguments, Mapping):
        return f"{function.get('name')}({arguments})"
    return f"{function.get('name')}({', '.join(f'{k}={v!r}' for k, v in arguments.items())})"
