"""Argument values that are not quite JSON: Python literals, and Gemma’s notation.

They are read into JSON text, so numbers stay as they were written.
"""

import json
import re
from dataclasses import dataclass

from flm.text.parsers.json_text import SCALAR
from flm.text.parsers.source import NoCallError, Source, Steps

_MAX_DEPTH = 64
_WORDS = {"True": "true", "False": "false", "None": "null"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}
_CODES = {"x": 2, "u": 4, "U": 8}
_NUMBER = re.compile(r"[+-]?(?:[0-9][0-9_]*)?\.?[0-9_]*(?:[eE][+-]?[0-9]+)?", re.ASCII)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)
TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Notation:
    """``quote`` is a string delimiter besides ' and ", without escapes (empty: there is none).
    ``has_bare_strings``: keys of objects stand without quotes, and so may strings."""

    quote: str = ""
    has_bare_strings: bool = False


PYTHON = Notation()
GEMMA = Notation(quote='<|"|>', has_bare_strings=True)


def read_value(source: Source, notation: Notation, depth: int = 0) -> Steps[str]:
    """Read one value; its JSON text.

    Raises:
        NoCallError: there is none.
    """
    if depth > _MAX_DEPTH:
        raise NoCallError
    yield from source.skip_space()
    if (yield from _begins_string(source, notation)):
        return _quoted((yield from _read_string(source, notation)))
    char = yield from source.peek()
    if char == "{":
        return (yield from read_object(source, notation, depth))
    if char == "[":
        return (yield from _read_list(source, notation, depth, "]"))
    if char == "(" and not notation.has_bare_strings:
        return (yield from _read_list(source, notation, depth, ")"))
    return _scalar((yield from source.word(",]})\n")).strip(), notation)


def read_object(source: Source, notation: Notation, depth: int = 0) -> Steps[str]:
    """Read a value in braces; its JSON text.

    Raises:
        NoCallError: there is none.
    """
    yield from source.expect("{")
    members: list[str] = []
    yield from source.skip_space()
    while not (yield from source.accept("}")):
        key = yield from _read_key(source, notation)
        yield from source.skip_space()
        yield from source.expect(":")
        value = yield from read_value(source, notation, depth + 1)
        members.append(f"{_quoted(key)}: {value}")
        yield from _separator(source, "}")
    return f"{{{', '.join(members)}}}"


def _read_list(source: Source, notation: Notation, depth: int, closer: str) -> Steps[str]:
    yield from source.take()
    items: list[str] = []
    yield from source.skip_space()
    while not (yield from source.accept(closer)):
        items.append((yield from read_value(source, notation, depth + 1)))
        yield from _separator(source, closer)
    return f"[{', '.join(items)}]"


def _separator(source: Source, closer: str) -> Steps[None]:
    """A comma, or a look at the closing bracket; a last comma before that is allowed."""
    yield from source.skip_space()
    if not (yield from source.looks_at(closer)):
        yield from source.expect(",")
        yield from source.skip_space()


def _read_key(source: Source, notation: Notation) -> Steps[str]:
    if (yield from _begins_string(source, notation)):
        return (yield from _read_string(source, notation))
    if not notation.has_bare_strings:
        raise NoCallError
    key = (yield from source.word(":,{}[]\n")).strip()
    if not key:
        raise NoCallError
    return key


# --- strings -----------------------------------------------------------------------------------


def _begins_string(source: Source, notation: Notation) -> Steps[str]:
    quotes = ("'", '"', notation.quote) if notation.quote else ("'", '"')
    return (yield from source.looks_at(*quotes))


def _read_string(source: Source, notation: Notation) -> Steps[str]:
    if notation.quote and (yield from source.accept(notation.quote)):
        text = yield from source.until(notation.quote)
        yield from source.expect(notation.quote)
        return text
    quote = yield from source.take()
    parts: list[str] = []
    while True:
        char = yield from source.take()
        if char == quote:
            return "".join(parts)
        parts.append((yield from _read_escape(source)) if char == "\\" else char)


def _read_escape(source: Source) -> Steps[str]:
    char = yield from source.take()
    if char in _CODES:
        return (yield from _read_code(source, char))
    if char in "\\'\"/":
        return char
    return _ESCAPES.get(char, f"\\{char}")


def _read_code(source: Source, kind: str) -> Steps[str]:
    digits = ""
    while len(digits) < _CODES[kind]:
        char = yield from source.peek()
        if not char or char not in "0123456789abcdefABCDEF":
            return f"\\{kind}{digits}"
        digits += char
        source.skip(1)
    code = int(digits, 16)
    is_character = code <= 0x10FFFF
    return chr(code) if is_character else f"\\{kind}{digits}"


def _quoted(text: str) -> str:
    # Two escapes may stand for the halves of one character; a half alone stays an escape.
    whole = (
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if _has_half(text)
        else text
    )
    return json.dumps(whole, ensure_ascii=False)


def _has_half(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def _scalar(word: str, notation: Notation) -> str:
    word = _WORDS.get(word, word)
    if SCALAR.fullmatch(word):
        return word
    if any(char.isdigit() for char in word) and _NUMBER.fullmatch(word):
        return _number(word.replace("_", ""))
    if notation.has_bare_strings and word:
        return _quoted(word)
    raise NoCallError


def _number(word: str) -> str:
    """A number in a form that JSON lacks, such as ``.5`` or ``+1``."""
    text = word.removeprefix("+")
    if text.lstrip("-").isdigit():
        return str(int(text)) if len(text) < 4000 else _quoted(word)
    try:
        value = float(text)
    except ValueError:
        raise NoCallError from None
    return repr(value) if abs(value) < float("inf") else _quoted(word)
