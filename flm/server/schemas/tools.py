"""The shape of ``tools`` and ``tool_choice``."""

import re
from typing import Any

from flm.errors import InvalidRequestError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

TOOLS_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "function"],
                "properties": {
                    "type": {"const": "function"},
                    "function": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string", "pattern": f"^{_NAME.pattern}$"},
                            "description": {"type": ["string", "null"]},
                            "parameters": {"type": ["object", "null"]},
                            "strict": {"enum": [False, None]},
                        },
                    },
                },
            },
        },
        {"type": "null"},
    ],
    "description": "Shown to the model through its chat template, or in a system message where "
    "that knows none. Function names are unique.",
}
TOOL_CHOICE_SCHEMA: dict[str, Any] = {
    "enum": ["auto", "none", None],
    "description": "none leaves the tools out of the prompt.",
}


def check_tools(tools: Any) -> list[dict[str, Any]]:
    """``tools`` as they are.

    Raises:
        InvalidRequestError: one of them is not a function tool that can be shown to a model.
    """
    if not isinstance(tools, list):
        raise InvalidRequestError("tools must be an array", param="tools")
    names: set[str] = set()
    for index, tool in enumerate(tools):
        name = _function_name(tool, f"tools[{index}]")
        if name in names:
            raise InvalidRequestError(f"tool function names must be unique: {name}", param="tools")
        names.add(name)
    return tools


def _function_name(tool: Any, path: str) -> str:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or tool.get("type") != "function":
        raise InvalidRequestError(f"{path} must be a function tool", param=path)
    name = function.get("name")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        _reject(
            f"{path}.function.name",
            "must contain at most 64 letters, digits, underscores, or hyphens",
        )
    _check_details(function, f"{path}.function")
    return str(name)


def _check_details(function: dict[str, Any], path: str) -> None:
    if not isinstance(function.get("description"), str | None):
        _reject(f"{path}.description", "must be a string")
    if not isinstance(function.get("parameters"), dict | None):
        _reject(f"{path}.parameters", "must be a JSON Schema object")
    strict = function.get("strict")
    if not isinstance(strict, bool | None):
        _reject(f"{path}.strict", "must be a boolean")
    if strict:
        _reject(
            f"{path}.strict",
            "is not supported because constrained JSON-schema decoding is unavailable",
        )


def check_tool_choice(choice: Any) -> str:
    """``auto`` or ``none``.

    Raises:
        InvalidRequestError: anything else; a choice that forces a call is not supported yet.
    """
    if choice in ("auto", "none"):
        return str(choice)
    if choice == "required" or isinstance(choice, dict):
        raise InvalidRequestError(
            "tool_choice that forces a call is not supported yet; use auto or none.",
            param="tool_choice",
        )
    raise InvalidRequestError(
        "tool_choice must be 'none', 'auto', 'required', or a named function", param="tool_choice"
    )


def _reject(path: str, problem: str) -> None:
    raise InvalidRequestError(f"{path} {problem}", param=path)
