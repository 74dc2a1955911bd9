"""The messages and tools of Ollama's chats."""

from typing import Any, Literal

from pydantic import Field

from flm.server.schemas.ollama_fields import Images
from flm.server.schemas.tools import TOOLS_SCHEMA, check_tools
from flm.server.schemas.types import Int64, Schema


class OllamaFunction(Schema):
    """A function and its arguments: the object, or its JSON text."""

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    index: Int64 | None = None


class OllamaCall(Schema):
    """A call the assistant made earlier."""

    id: str | None = None
    type: Literal["function"] | None = None
    function: OllamaFunction


class OllamaMessage(Schema):
    """One turn. ``tool_name`` and ``tool_call_id`` say whose result a tool's message is."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = None
    images: Images = None
    tool_calls: list[OllamaCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None

    @property
    def plain(self) -> dict[str, Any]:
        """The message as chat templates read it."""
        keys: dict[str, Any] = {
            "name": self.tool_name,
            "tool_call_id": self.tool_call_id,
            "reasoning_content": self.thinking,
            "tool_calls": [_plain_call(call) for call in self.tool_calls or ()] or None,
        }
        found = {key: value for key, value in keys.items() if value is not None}
        content = "" if self.content is None else self.content
        return {"role": self.role, "content": content, **found}


def _plain_call(call: OllamaCall) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": call.function.arguments}
    named = {} if call.id is None else {"id": call.id}
    return {**named, "type": "function", "function": function}


def read_tools(tools: Any) -> Any:
    """Tools as OpenAI has them; Ollama's may leave their type out.

    Raises:
        InvalidRequestError: one of them is not a function tool that can be shown to a model.
    """
    if isinstance(tools, list):
        tools = [{"type": "function", **item} if isinstance(item, dict) else item for item in tools]
    return check_tools(tools)


def _tools_schema() -> dict[str, Any]:
    tools, null = TOOLS_SCHEMA["anyOf"]
    item = {**tools["items"], "required": ["function"]}
    return {**TOOLS_SCHEMA, "anyOf": [{**tools, "items": item}, null]}


OLLAMA_TOOLS_SCHEMA = _tools_schema()
