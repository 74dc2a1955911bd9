"""What of a request its prompt does not show, found out by rendering it without that. Pure.

Chat templates choose what they write: most leave the names of speakers out, and some know only a
few keys of a tool. What a template leaves out changes nothing, and whoever sent it must be told.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from flm.text.messages import Message

P = TypeVar("P", bound=tuple[str, ...])
Render = Callable[[Sequence[Message], Sequence[Mapping[str, Any]]], str | None]
"""Messages as ``normalise`` makes them, and tools, to the rendered text; None when the
template refuses them."""

_TOOL_KEYS = {"type", "function"}
_FUNCTION_KEYS = {"name", "description", "parameters", "strict"}
# Each costs a rendering. What comes behind is tried together.
_MAX_TRIED_ALONE = 32


@dataclass(frozen=True, slots=True)
class Unshown:
    """Parts of a request without effect: ``names`` are indexes of messages, ``keys`` are indexes of
    tools, each with the path of a key in it."""

    names: tuple[int, ...] = ()
    keys: tuple[tuple[int, tuple[str, ...]], ...] = ()


def unshown(
    render: Render,
    messages: Sequence[Mapping[str, Any]],
    normal: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
) -> Unshown:
    """The names and the unknown keys of tools that change nothing in the prompt of ``messages``,
    which are ``normal`` in the form that is rendered. Renders nothing where there are none."""
    keys = [(index, path) for index, tool in enumerate(tools) for path in _unknown(tool)]
    names = list(_named(messages))
    whole = render(normal, tools) if names or keys else None
    if whole is None:
        return Unshown()

    def is_whole_without_names(roles: Collection[tuple[str, ...]]) -> bool:
        return render([_nameless(item, roles) for item in normal], tools) == whole

    def is_whole_without_keys(paths: Collection[tuple[str, ...]]) -> bool:
        return render(normal, [_stripped(tool, paths) for tool in tools]) == whole

    roles = _without_effect({(role,) for _, role in names}, is_whole_without_names)
    paths = _without_effect({path for _, path in keys}, is_whole_without_keys)
    return Unshown(
        names=tuple(index for index, role in names if (role,) in roles),
        keys=tuple(item for item in keys if item[1] in paths),
    )


def _without_effect(
    parts: Collection[P], is_whole_without: Callable[[Collection[P]], bool]
) -> set[P]:
    if not parts or is_whole_without(parts):
        return set(parts)
    listed = sorted(parts)
    groups = [[part] for part in listed[:_MAX_TRIED_ALONE]]
    if len(listed) > _MAX_TRIED_ALONE:
        groups.append(listed[_MAX_TRIED_ALONE:])
    return {part for group in groups if is_whole_without(group) for part in group}


# --- names -------------------------------------------------------------------------------------


def _named(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    """The index and the role of every message whose name says what nothing else does."""
    calls: list[Any] = []
    for index, message in enumerate(messages):
        role = message["role"]
        if role != "tool":
            calls = list(message.get("tool_calls") or ())
        answered = calls.pop(0) if role == "tool" and calls else None
        name = message.get("name")
        if name and name != _called(answered):
            yield index, "system" if role == "developer" else role


def _called(call: Any) -> Any:
    """The name of the function that was called: in front of its result it is shown already."""
    function = call.get("function") if isinstance(call, Mapping) else None
    return function.get("name") if isinstance(function, Mapping) else None


def _nameless(message: Message, roles: Collection[tuple[str, ...]]) -> Message:
    if (message["role"],) not in roles:
        return message
    return {key: value for key, value in message.items() if key != "name"}


# --- keys of tools -----------------------------------------------------------------------------


def _unknown(tool: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The paths of what no API of tools says and asks for something."""
    yield from ((key,) for key in tool if key not in _TOOL_KEYS and tool[key] not in (None, [], {}))
    function = tool["function"]
    for key in function:
        if key not in _FUNCTION_KEYS and function[key] not in (None, [], {}):
            yield ("function", key)


def _stripped(tool: Mapping[str, Any], paths: Collection[tuple[str, ...]]) -> dict[str, Any]:
    function = {
        key: value for key, value in tool["function"].items() if ("function", key) not in paths
    }
    return {
        key: function if key == "function" else value
        for key, value in tool.items()
        if (key,) not in paths
    }
