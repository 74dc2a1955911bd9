"""Structured output: from schemas, patterns, grammars and tools to a mask over the vocabulary."""

from flm.text.grammar.compile import CompiledGrammar, GrammarCompiler
from flm.text.grammar.layouts import ToolSignature
from flm.text.grammar.matcher import Closing, GrammarMatcher
from flm.text.grammar.sandbox import Sandbox
from flm.text.grammar.syntax import ToolSyntax, tool_syntax
from flm.text.grammar.vocabulary import Vocabulary, vocabulary_of

__all__ = [
    "Closing",
    "CompiledGrammar",
    "GrammarCompiler",
    "GrammarMatcher",
    "Sandbox",
    "ToolSignature",
    "ToolSyntax",
    "Vocabulary",
    "tool_syntax",
    "vocabulary_of",
]
