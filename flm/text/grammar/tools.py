"""How models write tool calls, as data, and the grammar that follows from it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flm.text.grammar.lark import json_value, literal, markup, regex
from flm.text.grammar.schema import SchemaError, normalize
from flm.text.grammar.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class ToolSyntax:
    """A dialect of tool calls. Every text may hold control tokens.

    A reply is ``section_begin call (separator call)* section_end``; a call is ``call_begin name
    after_name arguments call_end``. ``layout`` says how arguments are written: ``json`` as one
    object, ``tagged`` as ``parameter_begin key after_key value parameter_end`` for each, where a
    string stands as it is and anything else as JSON. ``trigger`` is how the first call is told
    from free text: a beginning of the reply's markup that is one control token or plain text.
    """

    call_begin: str
    after_name: str
    call_end: str
    trigger: str
    section_begin: str = ""
    separator: str = ""
    section_end: str = ""
    layout: Literal["json", "tagged"] = "json"
    parameter_begin: str = ""
    after_key: str = ""
    parameter_end: str = ""


class ToolError(ValueError):
    """The arguments of a tool cannot be enforced; ``param`` is the field that says so."""

    def __init__(self, tool: "ToolSignature", problem: str) -> None:
        super().__init__(f"{tool.name}: {problem}")
        self.param = tool.param


@dataclass(frozen=True, slots=True)
class ToolSignature:
    """A tool that may be called: its name, the JSON Schema of its arguments (None: it takes
    none), and the field that errors in that schema are blamed on."""

    name: str
    parameters: Mapping[str, Any] | None
    param: str


HERMES = ToolSyntax(
    call_begin='<tool_call>\n{"name": "',
    after_name='", "arguments": ',
    call_end="}\n</tool_call>",
    trigger="<tool_call>",
    separator="\n",
)
LLAMA3_JSON = ToolSyntax(
    call_begin='{"name": "',
    after_name='", "parameters": ',
    call_end="}",
    trigger='{"name": "',
    separator="; ",
)
MISTRAL = ToolSyntax(
    trigger="[TOOL_CALLS]",
    section_begin="[TOOL_CALLS][",
    call_begin='{"name": "',
    after_name='", "arguments": ',
    call_end="}",
    separator=", ",
    section_end="]",
)
QWEN3_5 = ToolSyntax(
    call_begin="<tool_call>\n<function=",
    after_name=">\n",
    call_end="</function>\n</tool_call>",
    trigger="<tool_call>",
    separator="\n",
    layout="tagged",
    parameter_begin="<parameter=",
    after_key=">\n",
    parameter_end="\n</parameter>\n",
)


def tool_grammar(
    tools: Sequence[ToolSignature],
    vocabulary: Vocabulary,
    *,
    syntax: ToolSyntax,
    at_least: int,
    at_most: int | None,
    free_text_before: bool,
) -> str:
    """A Lark grammar of replies with that many calls. Without ``at_least``, a reply may also be
    free text that does not begin a call, or with ``free_text_before`` unset empty.

    Raises:
        ToolError: the arguments of a tool cannot be enforced in this dialect.
    """
    rules = [rule for index, tool in enumerate(tools) for rule in _tool_rules(index, tool, syntax)]
    names = " | ".join(f"tool_{index}" for index in range(len(tools)))
    begin = syntax.section_begin + syntax.call_begin
    assert begin.startswith(syntax.trigger)
    assert at_most is None or 1 <= at_most >= at_least
    end = markup(syntax.section_end, vocabulary)
    rest = (
        f"{markup(begin[len(syntax.trigger) :], vocabulary)} body {_more(at_least, at_most)} {end}"
    )
    rules += [
        f"body: ({names}) {markup(syntax.call_end, vocabulary)}",
        f"next: {markup(syntax.separator + syntax.call_begin, vocabulary)} body",
        *_start(vocabulary.split(syntax.trigger), rest, at_least, free_text_before),
    ]
    marked = [rule if isinstance(rule, str) else rule(vocabulary) for rule in rules]
    return "\n".join(marked)


def _more(at_least: int, at_most: int | None) -> str:
    """The calls behind the first."""
    if at_most is None:
        return f"next{{{max(at_least - 1, 0)},}}"
    return f"next{{{max(at_least - 1, 0)},{at_most - 1}}}" if at_most > 1 else ""


def _start(trigger: list[str | int], rest: str, at_least: int, free_text: bool) -> list[str]:
    (first,) = trigger
    head = f"<[{first}]>" if isinstance(first, int) else literal(first)
    if not free_text:
        return [f"start: {head} {rest}" + ("" if at_least else ' | ""')]
    if isinstance(first, int):
        rules = ["free: /(?s:.*)/", f"head: free {head}"]
    else:
        known = f"(?s:.*){_escaped(first)}"
        rules = [
            f"head[lazy]: {regex(known)}",
            f"FREE: /(?s:.*)/ & ~{regex(known + '(?s:.*)')}",
            "free: FREE",
        ]
    return [*rules, f"start: head {rest}" + ("" if at_least else " | free")]


def _escaped(text: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else f"\\x{{{ord(c):x}}}" for c in text)


# --- one tool ----------------------------------------------------------------------------------


def _tool_rules(index: int, tool: ToolSignature, syntax: ToolSyntax) -> list[Any]:
    """Rules, those with markup in them as functions of the vocabulary."""
    try:
        return _rules_of(index, tool, syntax)
    except SchemaError as error:
        raise ToolError(tool, str(error)) from error


def _rules_of(index: int, tool: ToolSignature, syntax: ToolSyntax) -> list[Any]:
    schema = normalize(_object_schema(tool.parameters))
    head = f"tool_{index}: {literal(tool.name)}"
    if syntax.layout == "json":
        return [
            lambda v: f"{head} {markup(syntax.after_name, v)} arguments_{index}",
            f"arguments_{index}: {json_value(schema)}",
        ]
    return [
        lambda v: f"{head} {markup(syntax.after_name, v)} arguments_{index}",
        *_tagged_rules(index, schema, syntax),
    ]


def _object_schema(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    if parameters is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    if parameters.get("type", "object") != "object":
        raise SchemaError("", "type", "the arguments of a tool are an object")
    return {**parameters, "type": "object"}


_TAGGED_KEYWORDS = frozenset({"type", "properties", "required", "additionalProperties"})


def _tagged_rules(index: int, schema: dict[str, Any], syntax: ToolSyntax) -> list[Any]:
    definitions = schema["$defs"]
    root = _followed(schema, definitions)
    wrong = next((keyword for keyword in root if keyword not in _TAGGED_KEYWORDS), None)
    if wrong is not None:
        raise SchemaError("", wrong, "it cannot be enforced in this model's syntax of tool calls")
    properties, required = root.get("properties", {}), root.get("required", [])
    unknown = next((name for name in required if name not in properties), None)
    if unknown is not None:
        raise SchemaError("", "required", f"{unknown!r} is not among the properties")
    items, rules = [], []
    for number, (name, value) in enumerate(properties.items()):
        rule = f"parameter_{index}_{number}"
        items.append(f"{rule}{'' if name in required else '?'}")
        rules += _parameter_rules(rule, name, value, schema, syntax)
    return [f"arguments_{index}: {' '.join(items) if items else literal('')}", *rules]


def _parameter_rules(
    rule: str, name: str, value: Any, schema: dict[str, Any], syntax: ToolSyntax
) -> list[Any]:
    if re.fullmatch(r"[^\s<>=]+", name) is None:
        raise SchemaError("/properties", None, f"the key {name!r} cannot be written in a tag")
    definitions = schema["$defs"]

    def head(vocabulary: Vocabulary) -> str:
        begin = markup(f"{syntax.parameter_begin}{name}{syntax.after_key}", vocabulary)
        return f"{rule}: {begin} {rule}_value"

    return [head, *_value_rules(rule, name, _followed(value, definitions), value, schema, syntax)]


def _value_rules(
    rule: str, name: str, known: Any, value: Any, schema: dict[str, Any], syntax: ToolSyntax
) -> list[Any]:
    end = syntax.parameter_end
    if not isinstance(known, dict) or known.get("type") != "string":
        wrapped = {"allOf": [value], "$defs": schema["$defs"]}
        return [lambda v: f"{rule}_value: {rule}_json {markup(end, v)}",
                f"{rule}_json: {json_value(wrapped)}"]  # fmt: skip
    texts = [known["const"]] if "const" in known else known.get("enum")
    wrong = next((k for k in known if k not in ("type", "enum", "const")), None)
    if wrong is not None:
        pointer = f"/properties/{name}"
        raise SchemaError(pointer, wrong, "it cannot be enforced in this model's tool calls")
    if texts is not None:
        options = " | ".join(literal(text) for text in texts if isinstance(text, str))
        return [lambda v: f"{rule}_value: ({options}) {markup(end, v)}"]
    return [f"{rule}_value[lazy]: {regex(f'(?s:.*){_escaped(end)}')}"]


def _followed(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """A schema behind references that stand alone."""
    seen: set[str] = set()
    while isinstance(schema, dict) and "$ref" in schema and set(schema) <= {"$ref", "$defs"}:
        name = schema["$ref"].rpartition("/")[2]
        if name in seen:
            return schema
        seen.add(name)
        schema = definitions[name]
    return schema
