"""Tools for a model whose chat template knows none: told in words, in the Hermes form. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from flm.text.messages import SEPARATOR, Message, merged

_INTRO = """\
You can call functions to help with the request. These are the functions, each described by a JSON \
object:
<tools>
{tools}
</tools>

To call a function, write a JSON object with its name and its arguments between these tags, once \
for each call, and nothing after the calls:
<tool_call>
{{"name": "...", "arguments": {{...}}}}
</tool_call>"""


def has_calls(messages: Sequence[Message]) -> bool:
    """True when calls or their results stand in ``messages``."""
    return any(item["role"] == "tool" or item.get("tool_calls") for item in messages)


def with_calls_as_text(messages: Sequence[Message]) -> list[Message]:
    """``messages`` with calls and results written into their contents."""
    return merged(_as_text(message) for message in messages)


def with_tools_described(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
) -> list[Message]:
    """``messages`` with ``tools`` told at the end of the system's text."""
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    intro = {"role": "system", "content": _INTRO.format(tools=lines)}
    if messages and messages[0]["role"] == "system":
        first, *rest = messages
        content = SEPARATOR.join(part for part in (first["content"], intro["content"]) if part)
        return [{**first, "content": content}, *rest]
    return [intro, *messages]


def _as_text(message: Message) -> Message:
    if message["role"] == "tool":
        content = f"<tool_response>\n{message['content']}\n</tool_response>"
        return {"role": "user", "content": content}
    calls = message.get("tool_calls")
    if not calls:
        return message
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    parts = [message["content"], *(_call_text(call) for call in calls)]
    return {**rest, "content": "\n".join(part for part in parts if part)}


def _call_text(call: Any) -> str:
    function = call["function"]
    plain = {"name": function["name"], "arguments": function.get("arguments", {})}
    return f"<tool_call>\n{json.dumps(plain, ensure_ascii=False)}\n</tool_call>"
