"""JSON that arrives a few characters at a time (RFC 8259).

Two faults that models make and that leave no doubt are mended on the way: raw control characters
in strings are escaped, and so is a backslash that begins no escape.
"""

import json
import re
from collections.abc import Callable

from flm.text.parsers.source import NoCallError, Source, Steps

SCALAR = re.compile(
    r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null", re.ASCII
)
_SPACE = " \t\r\n"
_HEX = frozenset("0123456789abcdefABCDEF")
_CLOSERS = {"{": "}", "[": "]"}


class JSONScanner:
    """Follows one object or array. It is a state and no stack of calls, so depth costs nothing."""

    def __init__(self) -> None:
        self.is_done = False
        self.is_faulty = False
        self._open: list[str] = []  # the brackets that are open
        self._scalar = ""
        self._escape = ""  # a beginning of an escape, its backslash included
        self._is_key = False
        self._state: Callable[[str], str | None] = self._value

    def feed(self, text: str) -> "ScannedText":
        """Follow ``text`` to its end, the end of the value, or the first fault."""
        out: list[str] = []
        for index, char in enumerate(text):
            shown = self._state(char)
            if shown is None:
                self.is_faulty = True
                return ScannedText("".join(out), index)
            out.append(shown)
            if self.is_done:
                return ScannedText("".join(out), index + 1)
        return ScannedText("".join(out), len(text))

    @property
    def is_in_string(self) -> bool:
        """True when a string has begun and not ended."""
        return self._state in (self._string, self._in_escape)

    # --- states: each takes a character and gives what to show for it, None for a fault ----------

    def _value(self, char: str) -> str | None:
        if char in _SPACE:
            return char
        if char in _CLOSERS:
            self._open.append(char)
            self._state = self._first_key if char == "{" else self._first_item
            return char
        if not self._open:
            return None
        if char == '"':
            self._is_key = False
            self._state = self._string
            return char
        if char not in "-0123456789tfn":
            return None
        self._scalar, self._state = char, self._in_scalar
        return char

    def _first_item(self, char: str) -> str | None:
        return self._close(char) if char == "]" else self._value_or_space(char)

    def _value_or_space(self, char: str) -> str | None:
        return char if char in _SPACE else self._value(char)

    def _first_key(self, char: str) -> str | None:
        return self._close(char) if char == "}" else self._key(char)

    def _key(self, char: str) -> str | None:
        if char in _SPACE:
            return char
        if char != '"':
            return None
        self._is_key = True
        self._state = self._string
        return char

    def _colon(self, char: str) -> str | None:
        if char in _SPACE:
            return char
        self._state = self._value
        return char if char == ":" else None

    def _after(self, char: str) -> str | None:
        if char in _SPACE:
            return char
        if char != ",":
            return self._close(char)
        self._state = self._key if self._open[-1] == "{" else self._value
        return char

    def _in_scalar(self, char: str) -> str | None:
        if char not in _SPACE and char not in ",]}":
            self._scalar += char
            return char
        self._state = self._after
        return self._after(char) if SCALAR.fullmatch(self._scalar) else None

    def _close(self, char: str) -> str | None:
        if _CLOSERS[self._open[-1]] != char:
            return None
        self._open.pop()
        self.is_done = not self._open
        self._state = self._after
        return char

    def _string(self, char: str) -> str | None:
        if char == "\\":
            self._escape, self._state = char, self._in_escape
            return ""
        if char == '"':
            self._state = self._colon if self._is_key else self._after
        return json.dumps(char)[1:-1] if char < " " else char

    def _in_escape(self, char: str) -> str | None:
        begun = self._escape + char
        if begun == "\\u" or (len(begun) > 2 and char in _HEX and len(begun) < 6):
            self._escape = begun
            return ""
        self._state = self._string
        if (len(begun) == 2 and char in '"\\/bfnrt') or (len(begun) == 6 and char in _HEX):
            return begun
        # No escape: the backslash stands for itself, and so does what followed it.
        return f"\\{self._escape}{self._string(char)}"


class ScannedText:
    """What a scanner made of a text: the JSON to show, and how many characters it took."""

    __slots__ = ("num_read", "shown")

    def __init__(self, shown: str, num_read: int) -> None:
        self.shown = shown
        self.num_read = num_read


def ends_in_string(text: str) -> bool:
    """True when ``text`` is a beginning of an object or array and breaks off in a string."""
    scanner = JSONScanner()
    scanner.feed(text)
    return not (scanner.is_faulty or scanner.is_done) and scanner.is_in_string


def read_string(source: Source) -> Steps[str]:
    """Read a JSON string; its value.

    Raises:
        NoCallError: there is none.
    """
    yield from source.expect('"')
    raw = ['"']
    while raw[-1] != '"' or len(raw) == 1:
        char = yield from source.take()
        if char == "\\":
            char += yield from source.take()
        raw.append(char)
    try:
        return str(json.loads("".join(raw), strict=False))
    except ValueError:
        raise NoCallError from None


def skip_value(source: Source) -> Steps[None]:
    """Read any JSON value.

    Raises:
        NoCallError: there is none.
    """
    char = yield from source.peek()
    if char == '"':
        yield from read_string(source)
    elif char and char in _CLOSERS:
        scanner = JSONScanner()
        while not scanner.is_done:
            yield from scan_some(source, scanner)
            if scanner.is_faulty:
                raise NoCallError
    elif SCALAR.fullmatch((yield from source.word(",}] \t\r\n"))) is None:
        raise NoCallError


def scan_some(source: Source, scanner: JSONScanner) -> Steps[str]:
    """Read some of what ``scanner`` follows, at least a character unless that is a fault; the
    text to show for it. The end of the output is a fault."""
    if not (yield from source.peek()):
        scanner.is_faulty = True
        return ""
    scanned = scanner.feed(source.ahead)
    source.skip(scanned.num_read)
    return scanned.shown
