"""The shape of ``tools``."""

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
                            "strict": {"type": ["boolean", "null"]},
                        },
                    },
                },
            },
        },
        {"type": "null"},
    ],
    "description": "Shown to the model through its chat template, or in a system message where "
    "that knows none. Function names are unique. strict: true holds the arguments to their schema.",
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
    if not isinstance(function.get("strict"), bool | None):
        _reject(f"{path}.strict", "must be a boolean")


def _reject(path: str, problem: str) -> None:
    raise InvalidRequestError(f"{path} {problem}", param=path)
