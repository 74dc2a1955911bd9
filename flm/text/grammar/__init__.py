"""Structured output: from schemas, patterns, grammars and tools to a mask over the vocabulary."""

from flm.text.grammar.compile import CompiledGrammar, GrammarCompiler
from flm.text.grammar.matcher import GrammarMatcher
from flm.text.grammar.sandbox import Sandbox
from flm.text.grammar.tools import (
    HERMES,
    LLAMA3_JSON,
    MISTRAL,
    QWEN3_5,
    ToolSignature,
    ToolSyntax,
)
from flm.text.grammar.vocabulary import Vocabulary, vocabulary_of

__all__ = [
    "HERMES",
    "LLAMA3_JSON",
    "MISTRAL",
    "QWEN3_5",
    "CompiledGrammar",
    "GrammarCompiler",
    "GrammarMatcher",
    "Sandbox",
    "ToolSignature",
    "ToolSyntax",
    "Vocabulary",
    "vocabulary_of",
]
