"""Pieces of grammars in the engine's variant of Lark."""

import json
from typing import Any

from flm.text.grammar.vocabulary import Vocabulary

# Without it, where only one text can follow, the masks would allow only one way to cut it in
# tokens, made without regard to what stands before it.
OPTIONS = '%llguidance {"no_forcing": true}'
JSON_OPTIONS = {
    # Bounded, or a model could print blanks until its tokens are used up. Enough for one space
    # or a line break with indentation, as JSON writers print them.
    "whitespace_pattern": r"(?: |\r?\n[ \t]{0,32})",
    # No \u: with it a key could be spelled in a second way, and pass for another one.
    "json_allowed_escapes": 'nrbtf\\"',
}


def literal(text: str) -> str:
    """A text as a terminal."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def regex(expression: str) -> str:
    """An expression of the engine's dialect as a terminal."""
    return "/" + expression.replace("/", "\\x{2f}") + "/"


def json_value(schema: dict[str, Any]) -> str:
    """A value that a normalized schema describes, as a rule's body."""
    document = {**schema, "x-guidance": {**JSON_OPTIONS, "whitespace_flexible": True}}
    return f"%json {json.dumps(document)}"


def markup(text: str, vocabulary: Vocabulary) -> str:
    """A text of a model's own markup: control tokens where it has them, else characters."""
    parts = vocabulary.split(text)
    return " ".join(literal(part) if isinstance(part, str) else f"<[{part}]>" for part in parts)
