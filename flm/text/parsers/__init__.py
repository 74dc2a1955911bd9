"""Readers of a model’s output dialect, a small module each."""

from flm.text.parsers.base import Parser, Piece
from flm.text.parsers.plain import PlainParser
from flm.text.parsers.styles import ReasoningStyle, detect_reasoning, make_parser
from flm.text.parsers.think import ThinkParser

__all__ = [
    "Parser",
    "Piece",
    "PlainParser",
    "ReasoningStyle",
    "ThinkParser",
    "detect_reasoning",
    "make_parser",
]
