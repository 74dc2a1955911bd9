"""Regular expressions of JSON Schema (ECMA-262, Unicode mode) in the engine's own dialect.

The two dialects give the same text different meanings (``.``, ``\\s``, ``[a&&b]``, ``(?i)``), so
a pattern is parsed and written anew from parts that mean the same in both. What has no such part
is refused: look-around, back references, word boundaries, flags, anchors inside a group.
"""

import re
from dataclasses import dataclass, field

MAX_DEPTH = 60
MAX_DIGITS = 6
_QUANTIFIER = re.compile(r"[*+?]|\{(\d+)(?:(,)(\d*))?\}")
_GROUP = re.compile(r"\((\?:|\?<[A-Za-z_$][\w$]*>|\?P<[A-Za-z_]\w*>)?")
_PROPERTY = re.compile(r"[pP]\{(?:(?:gc|General_Category|sc|Script|scx|Script_Extensions)=)?\w+\}")
_HEX = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\}")
_LOOKS = {"(?=": "look-ahead", "(?!": "look-ahead", "(?<=": "look-behind", "(?<!": "look-behind"}
_SPACE = r"\t\n\x0b\x0c\r \x{a0}\x{feff}\p{Zs}\x{2028}\x{2029}"
_SETS = {"d": "0-9", "w": "0-9A-Za-z_", "s": _SPACE}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_ANY = "(?s:.*)"
_NOT_NEWLINE = r"[^\n\r\x{2028}\x{2029}]"
_NOTHING = r"[^\x{0}-\x{10ffff}]"


class PatternError(ValueError):
    """The pattern is not an ECMA-262 pattern, or has a part that cannot be enforced."""


def translate(pattern: str, *, whole: bool = False) -> str:
    """``pattern`` as an expression that matches a whole text exactly when ``pattern`` is found
    in it, or, with ``whole``, when ``pattern`` matches all of it.

    Raises:
        PatternError: naming the part that has no equivalent.
    """
    parser = _Parser(pattern)
    options = parser.alternatives(0)
    if not parser.at_end:
        raise PatternError(f"unmatched ')' at position {parser.position}")
    return "|".join(f"(?:{_anchored(option, whole)})" for option in _unwrapped(options))


@dataclass(slots=True)
class _Group:
    options: list["_Sequence"]
    quantifier: str = ""


@dataclass(slots=True)
class _Sequence:
    """Items in order: texts of the target dialect, groups, and the anchors ^ and $."""

    items: list["str | _Group"] = field(default_factory=list)


_START, _END = "^", "$"


# --- writing -----------------------------------------------------------------------------------


def _unwrapped(options: list[_Sequence]) -> list[_Sequence]:
    """Alternatives with the groups that are all of one opened, so that their anchors are seen."""
    result = []
    for option in options:
        only = option.items[0] if len(option.items) == 1 else None
        if isinstance(only, _Group) and not only.quantifier:
            result += _unwrapped(only.options)
        else:
            result.append(option)
    return result


def _anchored(option: _Sequence, whole: bool) -> str:
    items = list(option.items)
    starts = ends = whole
    while items and items[0] == _START:
        items.pop(0)
        starts = True
    while items and items[-1] == _END:
        items.pop()
        ends = True
    body = "".join(map(_written, items))
    return f"{'' if starts else _ANY}{body}{'' if ends else _ANY}"


def _written(item: str | _Group) -> str:
    if isinstance(item, _Group):
        inner = "|".join("".join(map(_written, option.items)) for option in item.options)
        return f"(?:{inner}){item.quantifier}"
    if item in (_START, _END):
        raise PatternError(f"the anchor {item} inside the pattern cannot be enforced")
    return item


def _check_bounds(match: re.Match[str]) -> None:
    bounds = [digits for digits in (match[1], match[3]) if digits]
    if any(len(digits) > MAX_DIGITS for digits in bounds):
        raise PatternError(f"a repetition has more than {MAX_DIGITS} digits")
    if len(bounds) > 1 and int(bounds[0]) > int(bounds[1]):
        raise PatternError(f"the bounds of {match[0]} are out of order")


def _literal(code: int) -> str:
    return chr(code) if code < 128 and chr(code).isalnum() else f"\\x{{{code:x}}}"


# --- reading -----------------------------------------------------------------------------------


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self.position = 0

    @property
    def at_end(self) -> bool:
        return self.position >= len(self._text)

    def alternatives(self, depth: int) -> list[_Sequence]:
        if depth > MAX_DEPTH:
            raise PatternError(f"groups are nested deeper than {MAX_DEPTH}")
        options = [_Sequence()]
        while not self.at_end and self._text[self.position] != ")":
            if self._take("|"):
                options.append(_Sequence())
            else:
                options[-1].items.append(self._term(depth))
        return options

    def _term(self, depth: int) -> str | _Group:
        char = self._text[self.position]
        if char in "^$":
            self.position += 1
            if _QUANTIFIER.match(self._text, self.position):
                raise PatternError(f"nothing to repeat after {char}")
            return char
        if char == "(":
            group = self._group(depth)
            group.quantifier = self._quantifier()
            return group
        return self._atom(char) + self._quantifier()

    def _group(self, depth: int) -> _Group:
        start = self.position
        for opening, name in _LOOKS.items():
            if self._text.startswith(opening, start):
                raise PatternError(f"{name} ({opening}...) cannot be enforced")
        match = _GROUP.match(self._text, start)
        if match is None or (match[1] is None and self._text.startswith("(?", start)):
            raise PatternError(f"the group {self._text[start : start + 4]!r} is not supported")
        self.position = match.end()
        group = _Group(self.alternatives(depth + 1))
        if not self._take(")"):
            raise PatternError(f"unclosed group at position {start}")
        return group

    def _quantifier(self) -> str:
        match = _QUANTIFIER.match(self._text, self.position)
        if match is None:
            return ""
        self.position = match.end()
        self._take("?")  # lazy and greedy accept the same texts
        if _QUANTIFIER.match(self._text, self.position):
            raise PatternError(f"nothing to repeat at position {self.position}")
        _check_bounds(match)
        return match[0]

    def _atom(self, char: str) -> str:
        if char in "*+?":
            raise PatternError(f"nothing to repeat at position {self.position}")
        if char == "{" and _QUANTIFIER.match(self._text, self.position):
            raise PatternError(f"nothing to repeat at position {self.position}")
        self.position += 1
        if char == ".":
            return _NOT_NEWLINE
        if char == "[":
            return self._class()
        if char == "\\":
            escaped = self._escape(in_class=False)
            return _literal(escaped) if isinstance(escaped, int) else f"[{escaped}]"
        return _literal(self._scalar(char))

    def _scalar(self, char: str) -> int:
        if "\ud800" <= char <= "\udfff":
            raise PatternError("a lone surrogate is no character")
        return ord(char)

    def _take(self, char: str) -> bool:
        found = self._text.startswith(char, self.position)
        self.position += len(char) if found else 0
        return found

    # --- classes and escapes -------------------------------------------------------------------

    def _class(self) -> str:
        start = self.position - 1
        negated = self._take("^")
        parts: list[str] = []
        while not self._take("]"):
            if self.at_end:
                raise PatternError(f"unclosed class at position {start}")
            parts.append(self._class_part())
        if not parts:
            return "(?s:.)" if negated else _NOTHING
        return f"[{'^' if negated else ''}{''.join(parts)}]"

    def _class_part(self) -> str:
        first = self._class_atom()
        next_two = self._text[self.position : self.position + 2]
        is_range = len(next_two) == 2 and next_two[0] == "-" and next_two[1] != "]"
        if isinstance(first, str) or not is_range:
            return first if isinstance(first, str) else _literal(first)
        self.position += 1
        last = self._class_atom()
        if isinstance(last, str):
            return f"{_literal(first)}{_literal(ord('-'))}{last}"
        if last < first:
            raise PatternError(f"the range {chr(first)}-{chr(last)} is out of order")
        return f"{_literal(first)}-{_literal(last)}"

    def _class_atom(self) -> int | str:
        char = self._text[self.position]
        self.position += 1
        return self._escape(in_class=True) if char == "\\" else self._scalar(char)

    def _escape(self, *, in_class: bool) -> int | str:
        """What stands behind a backslash: a code point, or the inside of a class."""
        if self.at_end:
            raise PatternError("the pattern ends in a backslash")
        char = self._text[self.position]
        if match := _PROPERTY.match(self._text, self.position):
            self.position = match.end()
            return f"\\{match[0]}"
        if _HEX.match(self._text, self.position):
            return self._code_point()
        self.position += 1
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char.lower() in _SETS:
            return _SETS[char] if char.islower() else f"[^{_SETS[char.lower()]}]"
        return self._plain_escape(char, in_class=in_class)

    def _plain_escape(self, char: str, *, in_class: bool) -> int:
        following = self._text[self.position : self.position + 1]
        if char == "b" and in_class:
            return 8
        if char == "0" and not following.isdigit():
            return 0
        if char == "c" and following.isascii() and following.isalpha():
            self.position += 1
            return ord(following) % 32
        if char in "bB":
            raise PatternError(f"the word boundary \\{char} cannot be enforced")
        if char.isdigit() or char == "k":
            raise PatternError(f"the back reference \\{char} cannot be enforced")
        if char.isalpha():
            raise PatternError(f"the escape \\{char} is not supported")
        return self._scalar(char)

    def _code_point(self) -> int:
        code = self._hex_escape()
        if 0xD800 <= code <= 0xDBFF and self._text.startswith("\\u", self.position):
            self.position += 1
            low = self._hex_escape()
            if 0xDC00 <= low <= 0xDFFF:
                return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        if 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
            raise PatternError(f"\\u{code:x} is no character")
        return code

    def _hex_escape(self) -> int:
        match = _HEX.match(self._text, self.position)
        if match is None:
            raise PatternError(f"a damaged \\u escape at position {self.position}")
        self.position = match.end()
        return int(next(digits for digits in match.groups() if digits is not None), 16)
