"""Who wrote a character of a rendered prompt: the template, or the request?

A chat template pours messages into its own markup, and the result is one string. A control token
may only come from the markup. The ways to tell, in the order in which they are tried:

*Shading.* The template is rendered a second time with every character of the request replaced,
one for one, by a private character. What comes out private came from the request; the rest is
markup. It holds for templates that pass text through, whatever they build their markers from.
The proof is in the rendering: with the characters put back it must equal the plain one.

*Naming.* The template's own strings are rewritten so that the control tokens in them stand under
names which no request can hold. It holds for templates that look into the text, and it asks that
markers stand in the template whole.

*Comparing.* For a template that does neither: when the shaded rendering, unequal as it is, has the
same markers in the same order as the plain one, none of them came from the request. If not, the
request is refused.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2 import nodes

Change = Callable[[str], str]

# Private names (see backend.py) use characters behind the second range.
_PRIVATE_PLANES = (range(0x100000, 0x10FFFE), range(0xF0000, 0xF5000))
# JSON escapes these, so a template that prints JSON would show that they were replaced. No control
# token is made of them alone.
_KEPT = frozenset('"\\') | frozenset(map(chr, range(0x20)))
_SCHEMA_TYPES = frozenset(
    {"function", "object", "string", "number", "integer", "boolean", "array", "null", "text"}
)
_MESSAGE_KEYS = frozenset(
    {
        *("role", "content", "name", "tool_calls", "tool_call_id", "id", "type", "function"),
        *("arguments", "parameters", "properties", "required", "description"),
    }
)


_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


class TooManyCharactersError(Exception):
    """The request has more different characters than there are private ones."""


class Shade:
    """A one-to-one replacement of the request's characters by private ones."""

    def __init__(self, texts: Iterable[str]) -> None:
        characters = set().union(*texts)
        codes = (code for plane in _PRIVATE_PLANES for code in plane if chr(code) not in characters)
        shaded = sorted(c for c in characters if not c.isspace() and c not in _KEPT)
        self._private = {ord(c): code for c, code in zip(shaded, codes, strict=False)}
        if len(self._private) < len(shaded):
            raise TooManyCharactersError
        self._plain = {code: c for c, code in self._private.items()}

    def shade(self, text: str) -> str:
        """``text`` in private characters; white space stays, since templates trim it."""
        return text.translate(self._private)

    def lift(self, text: str) -> str:
        """``text`` with the request's characters put back."""
        return text.translate(self._plain)


class RequestText:
    """Finds and changes the strings of a request in the values it gives to a template.

    Known roles, the type names of JSON schema and the keys that the template itself uses are
    structure; all other strings, keys included, are text.
    """

    def __init__(self, template_names: frozenset[str]) -> None:
        # A key the template uses is an identifier; anything else could spell a marker.
        names = frozenset(name for name in template_names if name.isidentifier())
        self._known_keys = names | _MESSAGE_KEYS

    def find(self, values: Iterable[Any]) -> set[str]:
        """Every text in ``values``."""
        found: set[str] = set()

        def note(text: str) -> str:
            found.add(text)
            return text

        for value in values:
            self.change(value, note)
        return found

    def change_message(self, message: Mapping[str, Any], change: Change) -> dict[str, Any]:
        """A copy of one message with every text changed."""
        changed: dict[str, Any] = self.change(message, change)
        if message["role"] in _ROLES:
            changed["role"] = message["role"]
        return changed

    def change(self, value: Any, change: Change) -> Any:
        """A copy of ``value`` with every text changed."""
        if isinstance(value, str):
            return change(value)
        if isinstance(value, Mapping):
            return {self._key(k, change): self._item(k, v, change) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.change(item, change) for item in value]
        return value

    def _key(self, key: Any, change: Change) -> Any:
        is_text = isinstance(key, str) and key not in self._known_keys
        return change(key) if is_text else key

    def _item(self, key: Any, item: Any, change: Change) -> Any:
        is_type = key == "type" and isinstance(item, str) and item in _SCHEMA_TYPES
        return item if is_type else self.change(item, change)


def template_names(tree: nodes.Template) -> frozenset[str]:
    """The attributes, keys and words that a template's text mentions."""
    constants = {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)}
    return frozenset(constants | {node.attr for node in tree.find_all(nodes.Getattr)})


def name_markers(tree: nodes.Template, to_private: Change) -> nodes.Template:
    """Put the private names of control tokens into every string of the template's own.

    The tree is changed in place.
    """
    for node in tree.find_all((nodes.Const, nodes.TemplateData)):
        if isinstance(node, nodes.TemplateData):
            node.data = to_private(node.data)
        elif isinstance(node, nodes.Const) and isinstance(node.value, str):
            node.value = to_private(node.value)
    return tree
