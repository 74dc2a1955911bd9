"""The tools of Anthropic's dialect, and what may be called of them."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from flm.errors import InvalidRequestError
from flm.server.schemas.anthropic_blocks import CacheControl
from flm.server.schemas.generation import Unmet
from flm.server.schemas.tool_choice import AUTO, ToolChoice
from flm.server.schemas.types import Schema

_NAME = r"^[A-Za-z0-9_-]{1,128}$"


class Tool(Schema):
    """A tool of the client's."""

    name: Annotated[str, Field(pattern=_NAME)]
    input_schema: dict[str, Any]
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None
    eager_input_streaming: bool | None = None
    defer_loading: bool | None = None
    allowed_callers: list[str] | None = None
    cache_control: CacheControl = None


class BuiltInTool(BaseModel):
    """A tool that Anthropic runs itself, or describes to its own models. What else it has is of no
    matter."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    type: str


def _tool_kind(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    if kind is None or kind == "custom":
        return "custom" if isinstance(value, dict | Tool) else None
    return "built_in" if isinstance(kind, str) and kind != "function" else None


AnyTool = Annotated[
    Annotated[Tool, Tag("custom")] | Annotated[BuiltInTool, Tag("built_in")],
    Discriminator(
        _tool_kind,
        custom_error_type="tool_kind",
        custom_error_message="must be an object with a name, a description and an input_schema",
    ),
]


class ToolChoiceField(Schema):
    """Whether tools may, must or must not be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


def check_tools(tools: Sequence[AnyTool] | None) -> None:
    """Look for names that come twice.

    Raises:
        InvalidRequestError: there is one.
    """
    names: set[str] = set()
    for index, tool in enumerate(tools if tools is not None else ()):
        if isinstance(tool, Tool):
            if tool.name in names:
                raise InvalidRequestError(
                    f"tools[{index}].name {tool.name} is the name of an earlier tool.",
                    param=f"tools[{index}].name",
                )
            names.add(tool.name)


def own_tools(tools: Sequence[AnyTool] | None) -> dict[int, Tool]:
    """The tools that can be called, by their places in the body."""
    listed = enumerate(tools if tools is not None else ())
    return {index: tool for index, tool in listed if isinstance(tool, Tool)}


def unmet_of_tools(tools: Sequence[AnyTool] | None) -> Iterator[Unmet]:
    """What the tools ask for that is not done."""
    for index, tool in enumerate(tools if tools is not None else ()):
        path = f"tools[{index}]"
        if not isinstance(tool, Tool):
            reason = (
                "Anthropic runs this tool, or describes it to its own models alone; send a tool "
                "with a name, a description and an input_schema."
            )
            yield Unmet(path, reason, tool.type)
            continue
        if tool.defer_loading:
            yield Unmet(f"{path}.defer_loading", "Every tool is shown from the beginning.", True)
        if tool.allowed_callers is not None and "direct" not in tool.allowed_callers:
            yield Unmet(f"{path}.allowed_callers", "Only the model itself calls tools.")


def as_function(tool: Tool) -> dict[str, Any]:
    """A tool in OpenAI's form."""
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.input_schema
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def read_choice(choice: ToolChoiceField | None) -> ToolChoice:
    """What ``tool_choice`` asks for.

    Raises:
        InvalidRequestError: it is to name a tool and does not.
    """
    if choice is None or choice.type == "auto":
        return AUTO
    if choice.type == "none":
        return ToolChoice("none")
    if choice.type == "any":
        return ToolChoice("required")
    if choice.name is None:
        raise InvalidRequestError(
            "tool_choice.name is required: the type tool names one.", param="tool_choice.name"
        )
    return ToolChoice("required", {choice.name: "tool_choice.name"}, is_single=True)
