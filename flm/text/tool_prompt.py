"""Tools for a model whose chat template knows none: told in words, in the Hermes form. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from flm.text.messages import SEPARATOR, Message

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
