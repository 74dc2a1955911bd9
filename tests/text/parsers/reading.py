"""Folding what a parser gives, and cutting text for it in every way."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from flm.text.parsers import Parser, Piece, ToolDialect, tool_parser


@dataclass
class Read:
    """A whole reply as a parser understood it. ``calls`` are name, arguments, and whether the call
    came to its end."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str, bool]] = field(default_factory=list)

    @property
    def values(self) -> list[tuple[str, Any]]:
        """Every call with its arguments read; all must be whole."""
        assert all(is_whole for _, _, is_whole in self.calls)
        return [(name, json.loads(arguments)) for name, arguments, _ in self.calls]


def read(parser: Parser, chunks: Iterable[str]) -> Read:
    """Feed ``chunks``, holding the parser to its contract."""
    text, pieces = "", []
    for chunk in chunks:
        text += chunk
        pieces += parser.feed(chunk)
        assert sum(piece.raw_len for piece in pieces) <= len(text)
    pieces += parser.flush()
    assert sum(piece.raw_len for piece in pieces) == len(text)
    return folded(pieces, text)


def folded(pieces: Sequence[Piece], text: str) -> Read:
    result, position = Read(), 0
    for piece in pieces:
        if piece.text:
            assert text[position : position + piece.raw_len] == piece.text
        position += piece.raw_len
        if piece.call is None:
            setattr(result, piece.channel, getattr(result, piece.channel) + piece.text)
            continue
        part = piece.call
        assert not piece.text
        assert (part.name is not None) == (part.index == len(result.calls))
        if part.name is not None:
            result.calls.append((part.name, "", False))
        assert part.index == len(result.calls) - 1, "calls come one after the other"
        name, arguments, was_whole = result.calls[-1]
        assert not was_whole
        result.calls[-1] = (name, arguments + part.arguments, part.is_last)
    return result


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("weather", city={"type": "string"}, days={"type": "integer"}),
    tool("note", text={"type": "string"}, tags={"type": "array"}, meta={"type": "object"}),
    tool("now"),
]


def said(dialect: ToolDialect, text: str, chunks: Iterable[str] | None = None) -> Read:
    return read(tool_parser(dialect, TOOLS), [text] if chunks is None else chunks)


def cut_up(text: str, cuts: Iterable[int]) -> list[str]:
    """``text`` in pieces; every number is a place to cut at."""
    bounds = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in pairwise(bounds)]


def check_cuts(dialect: ToolDialect, text: str, cuts: Iterable[int] = ()) -> Read:
    """The same reading whatever the cuts."""
    whole = said(dialect, text)
    assert said(dialect, text, cut_up(text, cuts)) == whole
    assert said(dialect, text, text) == whole
    return whole


cuts = st.lists(st.integers(0, 500), max_size=6)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["</tool_call>", "<tool_call>", "]", '"}', "</parameter>", "<|call|>", "\\"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
arguments = st.dictionaries(st.text(min_size=1, max_size=5), json_values, max_size=4)
calls = st.lists(
    st.tuples(st.sampled_from(["weather", "note", "now"]), arguments), min_size=1, max_size=3
)
