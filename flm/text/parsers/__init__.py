"""Readers of a model’s output dialect, a small module each."""

from flm.text.parsers.base import CallPart, Parser, Piece
from flm.text.parsers.dialects import TOOL_DIALECTS, ToolDialect, detect_tool_dialect, tool_parser
from flm.text.parsers.plain import HeldSpaceParser, PlainParser
from flm.text.parsers.styles import (
    THINK,
    OutputStyle,
    ReasoningStyle,
    ReplyShape,
    detect_reasoning,
    make_parser,
)
from flm.text.parsers.think import ThinkParser

__all__ = [
    "THINK",
    "TOOL_DIALECTS",
    "CallPart",
    "HeldSpaceParser",
    "OutputStyle",
    "Parser",
    "Piece",
    "PlainParser",
    "ReasoningStyle",
    "ReplyShape",
    "ThinkParser",
    "ToolDialect",
    "detect_reasoning",
    "detect_tool_dialect",
    "make_parser",
    "tool_parser",
]
