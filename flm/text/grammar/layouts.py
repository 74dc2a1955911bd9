"""How the arguments of one tool are written in a dialect: from a schema to grammar rules."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flm.text.grammar.closing import with_declared_keys
from flm.text.grammar.lark import json_value, literal, markup, regex
from flm.text.grammar.schema import SchemaError, normalize
from flm.text.grammar.strings import ANY_TEXT, allowed_types, followed, string_terminal
from flm.text.grammar.syntax import ToolSyntax
from flm.text.grammar.vocabulary import Vocabulary
from flm.text.parameter_types import named_types

_MEMBER_KEYWORDS = frozenset({"type", "properties", "required", "additionalProperties"})
_KEYWORD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TAG_KEY = re.compile(r"[^\s<>=]+")
_NONE_TAKEN: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class ToolSignature:
    """A tool that may be called: its name, the JSON Schema of its arguments (None: it takes
    none), and the field that errors in that schema are blamed on. ``is_open``: the arguments need
    only be an object."""

    name: str
    parameters: Mapping[str, Any] | None
    param: str
    is_open: bool = False


def argument_rules(
    name: str, tool: ToolSignature, syntax: ToolSyntax, vocabulary: Vocabulary
) -> list[str]:
    """Rules whose first, called ``name``, is the arguments of ``tool``.

    Raises:
        SchemaError: they cannot be enforced in this dialect.
    """
    layout = _Layout(name, syntax, vocabulary)
    if tool.is_open:
        return layout.open()
    asked = _NONE_TAKEN if tool.parameters is None else dict(tool.parameters)
    if asked.get("type", "object") != "object":
        raise SchemaError("", "type", "the arguments of a tool are an object")
    schema = with_declared_keys(normalize({**asked, "type": "object"}))
    return layout.closed(schema, asked)


@dataclass(frozen=True, slots=True)
class _Layout:
    """One dialect's way to write one tool's arguments."""

    name: str
    syntax: ToolSyntax
    vocabulary: Vocabulary

    def closed(self, schema: dict[str, Any], asked: Mapping[str, Any]) -> list[str]:
        """Arguments that satisfy a normalized schema; ``asked`` is it as it was sent."""
        if self.syntax.layout == "json":
            return [f"{self.name}: {json_value(schema)}"]
        root = followed(schema, schema["$defs"])
        problem = _no_members(root)
        if problem is None and self._can_write_keys(root):
            return self._members(root, schema["$defs"], asked)
        if self.syntax.layout == "keywords":
            return [f'{self.name}: "(**" {self.name}_all ")"',
                    f"{self.name}_all: {json_value(schema)}"]  # fmt: skip
        if self.syntax.layout == "bare_keys":
            return [f"{self.name}: {json_value(schema)}"]
        raise problem if problem is not None else _bad_key(root)

    def open(self) -> list[str]:
        """Any object."""
        name, syntax = self.name, self.syntax
        if syntax.layout == "json":
            return [f"{name}: {json_value(_any_object())}"]
        any_json = f"{name}_json: {json_value(normalize(True))}"
        if syntax.layout == "tagged":
            begin, after = self._markup(syntax.parameter_begin), self._markup(syntax.after_key)
            return [
                f"{name}: ({begin} {name}_key {after} {name}_text)*",
                f"{name}_key: /[^\\s<>=]{{1,64}}/",
                *self._text(f"{name}_text", ANY_TEXT, syntax.parameter_end),
            ]
        key = f"{name}_key: /[A-Za-z_][A-Za-z0-9_]{{0,63}}/"
        if syntax.layout == "keywords":
            member = f'{name}_member: {name}_key "=" ({name}_json | "True" | "False" | "None")'
            return [
                f'{name}: "(" ({name}_member (", " {name}_member)*)? ")"',
                member,
                key,
                any_json,
            ]
        quote = self._markup(syntax.quote)
        return [
            f'{name}: "{{" ({name}_member ("," {name}_member)*)? "}}"',
            f'{name}_member: {name}_key ":" ({name}_json | {quote} {name}_text)',
            key,
            any_json,
            *self._text(f"{name}_text", ANY_TEXT, syntax.quote),
        ]

    # --- declared members ----------------------------------------------------------------------

    def _can_write_keys(self, root: Mapping[str, Any]) -> bool:
        keys = root.get("properties", {})
        if self.syntax.layout == "keywords":
            return all(map(_KEYWORD_NAME.fullmatch, keys))
        return self.syntax.layout != "tagged" or all(map(_TAG_KEY.fullmatch, keys))

    def _members(
        self, root: Mapping[str, Any], definitions: Any, asked: Mapping[str, Any]
    ) -> list[str]:
        properties, required = root.get("properties", {}), root.get("required", [])
        rules: list[str] = []
        items: list[tuple[str, bool]] = []
        for number, (key, value) in enumerate(properties.items()):
            rule = f"{self.name}_{number}"
            items.append((rule, key in required))
            rules.append(f"{rule}: {self._key(key)} {rule}_value")
            if self.syntax.layout == "tagged":
                rules += self._tagged_value(f"{rule}_value", key, value, definitions, asked)
            else:
                rules += self._plain_value(f"{rule}_value", key, value, definitions)
        return [*self._sequence(items), *rules]

    def _key(self, key: str) -> str:
        syntax = self.syntax
        match syntax.layout:
            case "tagged":
                return self._markup(f"{syntax.parameter_begin}{key}{syntax.after_key}")
            case "keywords":
                return literal(f"{key}=")
        plain = key if _KEYWORD_NAME.fullmatch(key) else json.dumps(key, ensure_ascii=False)
        return literal(f"{plain}:")

    def _sequence(self, items: Sequence[tuple[str, bool]]) -> list[str]:
        """Items in their order, those that are not required perhaps left out."""
        opening, comma, closing = _BRACKETS[self.syntax.layout]
        name, last = self.name, len(items)
        rules = [f"{name}: {literal(opening)} {name}_from_0 {literal(closing)}"]
        for number, (item, is_required) in enumerate(items):
            rest = f"{name}_after_{number + 1}"
            skipped = "" if is_required else f" | {name}_from_{number + 1}"
            rules.append(f"{name}_from_{number}: {item} {rest}{skipped}")
            skipped = "" if is_required else f" | {rest}"
            rules.append(f"{name}_after_{number}: {literal(comma)} {item} {rest}{skipped}")
        return [*rules, f'{name}_from_{last}: ""', f'{name}_after_{last}: ""']

    # --- values --------------------------------------------------------------------------------

    def _tagged_value(
        self, rule: str, key: str, value: Any, definitions: Any, asked: Mapping[str, Any]
    ) -> list[str]:
        end, pointer = self.syntax.parameter_end, f"/properties/{key}"
        types = named_types(asked.get("properties", {}).get(key), asked)
        if "string" not in types:
            return [f"{rule}: {rule}_json {self._markup(end)}",
                    f"{rule}_json: {json_value(_within(value, definitions))}"]  # fmt: skip
        text = string_terminal(value, definitions, pointer)
        if "null" not in types:
            return self._text(rule, text, end)
        # There the text null is the null of JSON.
        may_be_null = "null" in allowed_types(value, definitions)
        return self._text(rule, f'({text} | "null")' if may_be_null else f"{text} & ~/null/", end)

    def _plain_value(self, rule: str, key: str, value: Any, definitions: Any) -> list[str]:
        types = allowed_types(value, definitions)
        if self.syntax.quote and types == {"string"}:
            text = string_terminal(value, definitions, f"/properties/{key}")
            return [f"{rule}: {self._markup(self.syntax.quote)} {rule}_text",
                    *self._text(f"{rule}_text", text, self.syntax.quote)]  # fmt: skip
        if self.syntax.layout == "keywords" and value == {"type": "boolean"}:
            return [f'{rule}: "True" | "False" | "true" | "false"']
        return [f"{rule}: {json_value(_within(value, definitions))}"]

    def _text(self, rule: str, terminal: str, end: str) -> list[str]:
        """A rule of the texts of ``terminal`` with ``end`` behind them."""
        guards = [self.syntax.parameter_guard] if self.syntax.parameter_guard else []
        return text_rules(rule, terminal, end, self.vocabulary, guards=guards)

    def _markup(self, text: str) -> str:
        return markup(text, self.vocabulary)


def text_rules(
    rule: str, terminal: str, end: str, vocabulary: Vocabulary, *, guards: Sequence[str] = ()
) -> list[str]:
    """A rule of the texts of ``terminal`` with the markup ``end`` behind them. None of them
    holds one of ``guards`` (``end`` when there are none): who reads the reply sees characters, not
    tokens."""
    first = vocabulary.split(end)[0]
    upper = rule.upper()
    own = f"{upper}: {terminal} & ~{holding(*(guards or (end,)))}"
    if isinstance(first, int):
        return [f"{rule}: {upper} {markup(end, vocabulary)}", own]
    return [f"{rule}[lazy]: {upper}_END", f"{upper}_END: {upper} {literal(end)}", own]


def holding(*texts: str) -> str:
    """A terminal of all that holds one of ``texts``."""
    return regex(f"(?s:.*)(?:{'|'.join(map(escaped, texts))})(?s:.*)")


def escaped(text: str) -> str:
    """A text as a regular expression of the engine's dialect."""
    return "".join(c if c.isascii() and c.isalnum() else f"\\x{{{ord(c):x}}}" for c in text)


_BRACKETS = {"tagged": ("", "", ""), "keywords": ("(", ", ", ")"), "bare_keys": ("{", ",", "}")}


def _within(schema: Any, definitions: Any) -> dict[str, Any]:
    return {"allOf": [schema], "$defs": definitions}


def _any_object() -> dict[str, Any]:
    return normalize({"type": "object"})


def _no_members(root: Any) -> SchemaError | None:
    """Why a schema says more of an object than which members it has."""
    wrong = next((keyword for keyword in root if keyword not in _MEMBER_KEYWORDS), None)
    if wrong is not None:
        return SchemaError("", wrong, "it cannot be enforced in this model's syntax of tool calls")
    properties = root.get("properties", {})
    unknown = next((name for name in root.get("required", ()) if name not in properties), None)
    if unknown is not None:
        return SchemaError("", "required", f"{unknown!r} is not among the properties")
    return None


def _bad_key(root: Mapping[str, Any]) -> SchemaError:
    key = next(key for key in root["properties"] if _TAG_KEY.fullmatch(key) is None)
    return SchemaError("/properties", None, f"the key {key!r} cannot be written in a tag")
