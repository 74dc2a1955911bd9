"""Qwen 3.5: ``<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>``.

A value is text; what it stands for depends on the schema of the tool. It ends at the closing tag
behind which the call goes on, so the same tag in the middle of a value does not end it, nor does
one in a string inside of an object or array.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from flm.text.parameter_types import named_types
from flm.text.parsers.calls import CallParser
from flm.text.parsers.json_text import ends_in_string
from flm.text.parsers.source import NoCallError, Steps

_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
_WORDS = {"True": "true", "False": "false", "None": "null"}


class QwenXMLParser(CallParser):
    """A feed/flush machine. A call is told when it is complete.

    ``schemas`` has the schema of each tool's arguments by the tool's name.
    """

    begin = "<tool_call>"
    end = "</tool_call>"
    markers = frozenset({begin, end})

    def __init__(
        self, is_known: Callable[[str], bool], schemas: Mapping[str, Mapping[str, Any]]
    ) -> None:
        super().__init__(is_known)
        self._schemas = schemas

    def calls(self) -> Steps[None]:
        """One call and its closing tag."""
        source = self.source
        yield from source.skip_space()
        while True:
            yield from self._call()
            yield from source.skip_space()
            if not (yield from source.looks_at(_FUNCTION)):
                break
        yield from source.accept(self.end)

    def _call(self) -> Steps[None]:
        source = self.source
        yield from source.expect(_FUNCTION)
        name = (yield from source.word(">\n")).strip()
        yield from source.expect(">")
        if not name:
            raise NoCallError
        schema = self._schemas.get(name, {})
        properties = _properties(schema)
        members: list[str] = []
        yield from source.skip_space()
        while (yield from source.accept(_PARAMETER)):
            key = (yield from source.word(">\n")).strip()
            yield from source.expect(">")
            types = named_types(properties.get(key), schema)
            text = yield from self._value(types)
            value = as_json(_unwrapped(text), types)
            members.append(f"{json.dumps(key, ensure_ascii=False)}: {value}")
            yield from source.skip_space()
        yield from source.expect(_FUNCTION_END)
        yield from self.whole_call(name, f"{{{', '.join(members)}}}")

    def _value(self, types: frozenset[str]) -> Steps[str]:
        source = self.source
        is_json = bool(types) and "string" not in types
        parts: list[str] = []
        while True:
            parts.append((yield from source.until(_PARAMETER_END)))
            yield from source.expect(_PARAMETER_END)
            is_end = yield from source.looks_past_space(_PARAMETER, _FUNCTION_END)
            if is_end and not (is_json and ends_in_string("".join(parts))):
                return "".join(parts)
            parts.append(_PARAMETER_END)


def as_json(text: str, types: frozenset[str]) -> str:
    """The JSON text of a value that was written as ``text``: a string where the schema names that
    type, else the JSON that it is, else a string."""
    quoted = json.dumps(text, ensure_ascii=False)
    if "string" in types:
        return "null" if text == "null" and "null" in types else quoted
    word = _WORDS.get(text.strip(), text.strip())
    try:
        json.loads(word, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return quoted
    return word


def _unwrapped(text: str) -> str:
    """Without the line breaks that the template puts around a value."""
    return text.removeprefix("\n").removesuffix("\n")


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _refuse(word: str) -> None:
    raise ValueError(word)
