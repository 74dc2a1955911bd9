"""Which tools a reply may, must or must not call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flm.errors import InvalidRequestError
from flm.server.schemas.types import unread_keys
from flm.types import CallableTool, CallRules

MAX_CALLS = 16
"""In one reply whose calls are held to a grammar: what can go on for ever must end."""

_NAMED_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["type", "function"],
    "properties": {
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}},
        },
    },
}
TOOL_CHOICE_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"enum": ["auto", "none", "required", None]},
        _NAMED_SCHEMA,
        {
            "type": "object",
            "required": ["type", "allowed_tools"],
            "properties": {
                "type": {"const": "allowed_tools"},
                "allowed_tools": {
                    "type": "object",
                    "required": ["mode", "tools"],
                    "properties": {
                        "mode": {"enum": ["auto", "required"]},
                        "tools": {"type": "array", "minItems": 1, "items": _NAMED_SCHEMA},
                    },
                },
            },
        },
    ],
    "description": "Enforced, whichever the model: auto, none (leaves the tools out of the "
    "prompt), required, one function, or allowed_tools.",
}
_PARAM = "tool_choice"


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """``names`` are the only tools that may be called, with the fields that named them; None: all.
    ``is_single``: exactly one call. ``unread``: paths and values of keys without effect."""

    mode: Literal["none", "auto", "required"]
    names: Mapping[str, str] | None = None
    is_single: bool = False
    unread: tuple[tuple[str, Any], ...] = ()


AUTO = ToolChoice("auto")


def read_tool_choice(value: Any) -> ToolChoice:
    """What ``tool_choice`` asks for.

    Raises:
        InvalidRequestError: it has another shape.
    """
    match value:
        case "none" | "auto" | "required":
            return ToolChoice(value)
        case str():
            _reject("must be 'none', 'auto', 'required', or a named function")
        case {"type": "function"}:
            return _named(value)
        case {"type": "allowed_tools"}:
            return _allowed(value)
    return _reject("must be a supported string or function-tool object")


def _named(value: dict[str, Any]) -> ToolChoice:
    name = _function_name(value)
    if name is None:
        raise InvalidRequestError(
            "named tool_choice must have the shape {type:'function', function:{name:'...'}}",
            param=_PARAM,
        )
    names = {name: f"{_PARAM}.function.name"}
    return ToolChoice("required", names, is_single=True, unread=_unread_named(value, _PARAM))


def _allowed(value: dict[str, Any]) -> ToolChoice:
    path = f"{_PARAM}.allowed_tools"
    allowed = value.get("allowed_tools")
    if not isinstance(allowed, dict):
        raise InvalidRequestError(
            "allowed_tools tool_choice must contain an allowed_tools object", param=path
        )
    mode, tools = allowed.get("mode"), allowed.get("tools")
    if mode not in ("auto", "required"):
        raise InvalidRequestError(
            "allowed_tools.mode must be 'auto' or 'required'", param=f"{path}.mode"
        )
    if not isinstance(tools, list) or not tools:
        raise InvalidRequestError(
            "allowed_tools.tools must be a non-empty array", param=f"{path}.tools"
        )
    names: dict[str, str] = {}
    unread = [*unread_keys(value, ("type", "allowed_tools"), _PARAM)]
    unread += unread_keys(allowed, ("mode", "tools"), path)
    for index, tool in enumerate(tools):
        place = f"{path}.tools[{index}]"
        name = _function_name(tool)
        if name is None:
            raise InvalidRequestError(f"{place} must name a function", param=place)
        names.setdefault(name, f"{place}.function.name")
        unread += _unread_named(tool, place)
    return ToolChoice(mode, names, unread=tuple(unread))


def _function_name(value: Any) -> str | None:
    match value:
        case {"type": "function", "function": {"name": str(name)}}:
            return name
    return None


def _unread_named(value: dict[str, Any], path: str) -> tuple[tuple[str, Any], ...]:
    """What stands beside the name of a function."""
    return (
        *unread_keys(value, ("type", "function"), path),
        *unread_keys(value["function"], ("name",), f"{path}.function"),
    )


def _reject(problem: str) -> ToolChoice:
    raise InvalidRequestError(f"{_PARAM} {problem}", param=_PARAM)


# --- together with the tools ---------------------------------------------------------------------


def check_names(choice: ToolChoice, tools: Sequence[Mapping[str, Any]]) -> None:
    """Look for what ``choice`` names.

    Raises:
        InvalidRequestError: a call is asked for and there is nothing to call.
    """
    if choice.mode != "required" and choice.names is None:
        return
    if not tools:
        _reject("requires at least one function in tools")
    known = {tool["function"]["name"] for tool in tools}
    for name, param in choice.names.items() if choice.names is not None else ():
        if name not in known:
            who = _PARAM if choice.is_single else "allowed_tools"
            raise InvalidRequestError(
                f"{who} names a function that is not present in tools: {name}", param=param
            )


def callable_tools(
    choice: ToolChoice, tools: Sequence[Mapping[str, Any]]
) -> tuple[Mapping[str, Any], ...]:
    """The tools that may be called; only these are shown to the model."""
    if choice.mode == "none":
        return ()
    names = choice.names
    return tuple(tool for tool in tools if names is None or tool["function"]["name"] in names)


def call_rules(
    choice: ToolChoice,
    tools: Sequence[Mapping[str, Any]],
    *,
    is_parallel: bool,
    has_format: bool,
    schema_field: str = "function.parameters",
    places: Sequence[int] | None = None,
    max_calls: int | None = None,
) -> CallRules | None:
    """The rules for calls that a grammar enforces; None where calls are as the model makes them.

    ``has_format``: an answer without calls is held to a grammar, so calls must be part of that.
    ``schema_field`` is where the body has the schema of a tool's arguments, ``places`` are the
    indexes of ``tools`` in its list (None: they are all of it). A reply makes at most
    ``max_calls`` calls.
    """
    names = {tool["function"]["name"] for tool in callable_tools(choice, tools)}
    if not names:
        return None
    is_forced = choice.mode == "required"
    described = tuple(
        _callable(tool["function"], f"tools[{place}].{schema_field}", is_forced=is_forced)
        for place, tool in zip(range(len(tools)) if places is None else places, tools, strict=True)
        if tool["function"]["name"] in names
    )
    if is_forced or choice.names is not None:
        param = _PARAM
    elif any(tool.is_enforced for tool in described):
        param = "tools"
    elif not is_parallel:
        param = "parallel_tool_calls"
    elif max_calls is not None:
        param = "max_tool_calls"
    elif has_format:
        param = "tools"
    else:
        return None
    most = MAX_CALLS if max_calls is None else max_calls
    at_most = 1 if choice.is_single or not is_parallel else most
    return CallRules(described, at_most, is_forced, param)


def _callable(function: Mapping[str, Any], param: str, *, is_forced: bool) -> CallableTool:
    return CallableTool(
        name=function["name"],
        parameters=function.get("parameters"),
        param=param,
        is_enforced=is_forced or function.get("strict") is True,
    )
