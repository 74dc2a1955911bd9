"""Tools and their choice, as OpenAI's Responses API writes them: flat."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from flm.errors import InvalidRequestError
from flm.server.schemas.tool_choice import ToolChoice
from flm.server.schemas.tools import check_tools
from flm.server.schemas.types import unread_keys

_NAMED: dict[str, Any] = {
    "type": "object",
    "required": ["type", "name"],
    "properties": {"type": {"const": "function"}, "name": {"type": "string"}},
}
FLAT_TOOLS_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {
            "type": "array",
            "items": {
                "anyOf": [
                    {
                        "type": "object",
                        "required": ["type", "name"],
                        "properties": {
                            "type": {"const": "function"},
                            "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
                            "description": {"type": ["string", "null"]},
                            "parameters": {"type": ["object", "null"]},
                            "strict": {"type": ["boolean", "null"]},
                        },
                    },
                    {
                        "type": "object",
                        "required": ["type"],
                        "properties": {"type": {"type": "string", "not": {"const": "function"}}},
                    },
                ]
            },
        },
        {"type": "null"},
    ],
    "description": "Function tools; strict: true holds the arguments to their schema, absent it is "
    "false. Tools of other types, which only OpenAI can run, are recorded as dropped.",
}
FLAT_CHOICE_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"enum": ["auto", "none", "required", None]},
        _NAMED,
        {
            "type": "object",
            "required": ["type", "mode", "tools"],
            "properties": {
                "type": {"const": "allowed_tools"},
                "mode": {"enum": ["auto", "required"]},
                "tools": {"type": "array", "minItems": 1, "items": _NAMED},
            },
        },
    ],
    "description": "Enforced, whichever the model: auto, none (leaves the tools out of the "
    "prompt), required, one function, or allowed_tools.",
}
_CHOICE = "tool_choice"
_NAMED_KEYS = ("type", "name")


@dataclass(frozen=True, slots=True)
class FlatTools:
    """The tools of a request: ``functions`` in the form of chat completions, with the indexes at
    which they came, and the types of the others by theirs."""

    functions: tuple[Mapping[str, Any], ...] = ()
    places: tuple[int, ...] = ()
    hosted: Mapping[int, str] | None = None

    def echoed(self) -> list[dict[str, Any]]:
        """The functions as the API gives them back."""
        return [_flat(tool["function"]) for tool in self.functions]


def read_flat_tools(value: Any) -> FlatTools:
    """The tools that ``value`` holds.

    Raises:
        InvalidRequestError: it is no array, or a tool in it cannot be shown to a model.
    """
    if not isinstance(value, list):
        raise InvalidRequestError("tools must be an array", param="tools")
    functions: list[Mapping[str, Any]] = []
    places: list[int] = []
    hosted: dict[int, str] = {}
    for place, tool in enumerate(value):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if not isinstance(kind, str):
            path = f"tools[{place}]"
            raise InvalidRequestError(f"{path} must be an object with a type", param=path)
        if kind == "function":
            functions.append(_nested(tool, f"tools[{place}]"))
            places.append(place)
        else:
            hosted[place] = kind
    _check(functions, places)
    return FlatTools(tuple(functions), tuple(places), hosted)


def _nested(tool: Mapping[str, Any], path: str) -> dict[str, Any]:
    if "name" not in tool and isinstance(tool.get("function"), dict):
        raise InvalidRequestError(
            f"{path}.name is required: here name, description and parameters stand beside type, "
            "not under function.",
            param=f"{path}.name",
        )
    function = {key: value for key, value in tool.items() if key != "type" and value is not None}
    return {"type": "function", "function": function}


def _check(functions: list[Mapping[str, Any]], places: Sequence[int]) -> None:
    """Look at each function as chat completions do; errors name it by where it came."""
    try:
        check_tools(functions)
    except InvalidRequestError as error:
        nested = error.param if error.param is not None else ""
        for index, place in enumerate(places):
            if nested.startswith(f"tools[{index}]"):
                flat = nested.replace(f"tools[{index}].function", f"tools[{place}]", 1)
                raise InvalidRequestError(
                    error.message.replace(nested, flat, 1), param=flat
                ) from None
        raise


def _flat(function: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "name": function["name"],
        "description": function.get("description"),
        "parameters": function.get("parameters"),
        "strict": function.get("strict") is True,
    }


# --- the choice --------------------------------------------------------------------------------


def read_flat_choice(value: Any) -> ToolChoice:
    """What ``tool_choice`` asks for.

    Raises:
        InvalidRequestError: it has another shape, or asks for a tool that only OpenAI can run.
    """
    match value:
        case "none" | "auto" | "required":
            return ToolChoice(value)
        case {"type": "function", "name": str(name)}:
            unread = tuple(unread_keys(value, _NAMED_KEYS, _CHOICE))
            return ToolChoice("required", {name: f"{_CHOICE}.name"}, is_single=True, unread=unread)
        case {"type": "function"}:
            _reject("tool_choice must have the shape {type: 'function', name: '...'}")
        case {"type": "allowed_tools"}:
            return _allowed(value)
        case {"type": str(kind)}:
            _reject(f"tool_choice asks for {kind[:40]!r}; only functions can be called here")
    raise InvalidRequestError(
        "tool_choice must be 'none', 'auto', 'required', or a function.", param=_CHOICE
    )


def _allowed(value: Mapping[str, Any]) -> ToolChoice:
    mode, tools = value.get("mode"), value.get("tools")
    if mode not in ("auto", "required"):
        _reject("tool_choice.mode must be 'auto' or 'required'", f"{_CHOICE}.mode")
    if not isinstance(tools, list) or not tools:
        _reject("tool_choice.tools must be a non-empty array", f"{_CHOICE}.tools")
    names: dict[str, str] = {}
    unread = [*unread_keys(value, ("type", "mode", "tools"), _CHOICE)]
    for index, tool in enumerate(tools):
        path = f"{_CHOICE}.tools[{index}]"
        match tool:
            case {"type": "function", "name": str(name)}:
                names.setdefault(name, f"{path}.name")
            case _:
                _reject(f"{path} must name a function", path)
        unread += unread_keys(tool, _NAMED_KEYS, path)
    return ToolChoice(mode, names, unread=tuple(unread))


def _reject(problem: str, param: str = _CHOICE) -> NoReturn:
    raise InvalidRequestError(f"{problem}.", param=param)


def echoed_choice(choice: ToolChoice) -> str | dict[str, Any]:
    """The choice as the API gives it back."""
    if choice.names is None:
        return choice.mode
    tools = [{"type": "function", "name": name} for name in choice.names]
    if choice.is_single:
        return tools[0]
    return {"type": "allowed_tools", "mode": choice.mode, "tools": tools}
