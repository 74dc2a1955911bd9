"""From what a request asks for to a grammar that sequences can follow."""

import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import any_to_lark

from flm.errors import InvalidRequestError
from flm.text.grammar.lark import OPTIONS, json_value, literal, regex
from flm.text.grammar.layouts import ToolSignature
from flm.text.grammar.matcher import Closing, GrammarMatcher
from flm.text.grammar.pattern import translate
from flm.text.grammar.sandbox import GrammarError, Sandbox
from flm.text.grammar.schema import normalize
from flm.text.grammar.syntax import ToolSyntax
from flm.text.grammar.tools import ToolError, tool_grammar
from flm.text.grammar.trial import STACK_BYTES, limits
from flm.text.grammar.vocabulary import Vocabulary

MAX_ENTRIES = 64
MAX_CHARS = 1_000_000
MAX_CHOICES = 10_000
_STACK_LOCK = threading.Lock()
_FORBIDDEN = {
    "%json": "send a schema as structured_outputs.json",
    "%llguidance": "its options are set by the server",
}
_FORBIDDEN_ATTRIBUTE = re.compile(r"\[[^\]\n]*\b(stop|max_tokens|temperature)\s*=")


class CompiledGrammar:
    """A grammar over one vocabulary. Immutable; may be used from several threads."""

    def __init__(self, vocabulary: Vocabulary, prototype: Any, *, num_chars: int) -> None:
        self.num_chars = num_chars
        self._vocabulary = vocabulary
        self._prototype = prototype

    def matcher(
        self,
        *,
        vocab_size: int,
        eos_ids: frozenset[int] = frozenset(),
        start_after_ids: tuple[int, ...] | None = None,
        open_ids: tuple[int, ...] = (),
        closing: Closing | None = None,
    ) -> GrammarMatcher:
        """A fresh matcher, for one sequence. Arguments as of ``GrammarMatcher``."""
        return GrammarMatcher(
            self._vocabulary,
            self._prototype.deep_copy(),
            vocab_size=vocab_size,
            eos_ids=eos_ids,
            start_after_ids=start_after_ids,
            open_ids=open_ids,
            closing=closing,
        )


class GrammarCompiler:
    """Compiles for one model and keeps what was used last. May be used from several threads.

    Every method blocks for as long as a compilation takes, seconds at most, and raises
    ``InvalidRequestError`` with the caller's ``param`` for whatever cannot be enforced.
    """

    def __init__(
        self, vocabulary: Vocabulary, sandbox: Sandbox, *, max_entries: int = MAX_ENTRIES
    ) -> None:
        self._vocabulary = vocabulary
        self._sandbox = sandbox
        self._max_entries = max_entries
        self._lock = threading.Lock()
        self._compiled: OrderedDict[bytes, CompiledGrammar | _Refusal] = OrderedDict()

    def compile_json(self, schema: Any, *, param: str) -> CompiledGrammar:
        """JSON that satisfies ``schema``; None: any JSON object."""
        asked = {"type": "object"} if schema is None else schema
        return self._get(("json", asked), param, lambda: f"start: {_json_body(asked)}")

    def compile_regex(self, pattern: str, *, param: str) -> CompiledGrammar:
        """A text that ``pattern`` (ECMA-262) matches as a whole."""
        return self._get(("regex", pattern), param, lambda: f"start: {_regex_body(pattern)}")

    def compile_choice(self, choices: Sequence[str], *, param: str) -> CompiledGrammar:
        """One of the texts."""
        return self._get(
            ("choice", list(choices)), param, lambda: f"start: {_choice_body(choices)}"
        )

    def compile_grammar(self, text: str, *, param: str) -> CompiledGrammar:
        """A text of a context-free grammar, in Lark or in GBNF."""
        return self._get(("grammar", text), param, lambda: _user_grammar(text))

    def compile_tool_calls(
        self,
        tools: Sequence[ToolSignature],
        *,
        syntax: ToolSyntax,
        at_most: int | None = None,
        free_text: bool = False,
        answer: tuple[str, Any] | None = None,
        param: str = "tools",
    ) -> CompiledGrammar:
        """Calls of the tools with arguments that satisfy their schemas, as ``tool_grammar``.
        ``answer`` is what may be said in their place: json, regex or choice, and its value."""

        def build() -> str:
            return tool_grammar(
                tools,
                self._vocabulary,
                syntax=syntax,
                at_most=at_most,
                free_text=free_text,
                answer=None if answer is None else _body(*answer),
            )

        shape = [[tool.name, tool.parameters, tool.param, tool.is_open] for tool in tools]
        asked = ("tools", shape, repr(syntax), at_most, free_text, answer)
        return self._get(asked, param, build)

    # --- the cache -----------------------------------------------------------------------------

    def _get(self, asked: Any, param: str, build: Callable[[], str]) -> CompiledGrammar:
        """What was compiled for the same wish, refusals included: those cost as much."""
        key = _key(asked, param)
        with self._lock:
            found = self._compiled.get(key)
        if found is None:
            found = self._compiled_or_refused(asked[0], build)
        with self._lock:
            self._compiled[key] = found
            self._compiled.move_to_end(key)
            self._forget()
        if isinstance(found, _Refusal):
            blamed = param if found.param is None else found.param
            raise InvalidRequestError(found.message, param=blamed)
        return found

    def _forget(self) -> None:
        """Keep the entries in number and in size within their limits, the last one always."""
        while len(self._compiled) > self._max_entries or (
            len(self._compiled) > 1
            and sum(entry.num_chars for entry in self._compiled.values()) > MAX_CHARS
        ):
            self._compiled.popitem(last=False)

    def _compiled_or_refused(
        self, kind: str, build: Callable[[], str]
    ) -> "CompiledGrammar | _Refusal":
        try:
            return self._compile(build())
        except ToolError as error:
            return _Refusal(_message(kind, error), error.param)
        except ValueError as error:
            return _Refusal(_message(kind, error))

    def _compile(self, text: str) -> CompiledGrammar:
        if len(text) > MAX_CHARS:
            raise GrammarError(f"it is longer than {MAX_CHARS} characters")
        grammar = LLMatcher.grammar_from_lark(f"{text}\n{OPTIONS}\n")
        vocabulary = self._vocabulary
        self._sandbox.check(grammar, size=vocabulary.size, special=vocabulary.special)
        prototype = _on_large_stack(lambda: _prototype(vocabulary, grammar))
        if prototype.is_error():
            raise GrammarError(prototype.get_error())
        return CompiledGrammar(vocabulary, prototype, num_chars=len(text))


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a wish cannot be granted; ``param`` is the field at fault, if not the whole wish."""

    message: str
    param: str | None = None
    num_chars: int = 0


def _prototype(vocabulary: Vocabulary, grammar: str) -> Any:
    prototype = LLMatcher(vocabulary.engine, grammar, log_level=0, limits=limits())
    if not prototype.is_error():
        prototype.compute_bitmask()  # the first mask fills tables that copies share
    return prototype


def _on_large_stack(action: Callable[[], Any]) -> Any:
    """Run ``action`` in a thread of its own: the engine recurses over what it compiles."""
    results: list[Any] = []
    with _STACK_LOCK:
        usual = threading.stack_size(2 * STACK_BYTES)
        try:
            thread = threading.Thread(target=lambda: results.append(action()))
            thread.start()
        finally:
            threading.stack_size(usual)
    thread.join()
    return results[0]


def _key(asked: Any, param: str) -> bytes:
    """A digest of what was asked. The order of keys counts: replies are written in it."""
    try:
        text = json.dumps(asked)
    except (RecursionError, TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"{_KINDS[asked[0]]}: it is nested too deeply, or no JSON value.", param=param
        ) from error
    if len(text) > MAX_CHARS:
        raise InvalidRequestError(
            f"{_KINDS[asked[0]]}: it is longer than {MAX_CHARS} characters.", param=param
        )
    return hashlib.sha256(text.encode()).digest()


def _body(kind: str, value: Any) -> str:
    """The body of a rule for an answer of this kind."""
    match kind:
        case "json":
            return _json_body({"type": "object"} if value is None else value)
        case "regex":
            return _regex_body(value)
    return _choice_body(value)


def _json_body(schema: Any) -> str:
    return json_value(normalize(schema))


def _regex_body(pattern: str) -> str:
    return regex(translate(pattern, whole=True))


def _choice_body(choices: Sequence[str]) -> str:
    if not 1 <= len(choices) <= MAX_CHOICES or not all(choices):
        raise GrammarError(f"1 to {MAX_CHOICES} choices, none of them empty")
    return f"CHOICE\nCHOICE: {' | '.join(map(literal, choices))}"


def _user_grammar(text: str) -> str:
    for directive, remedy in _FORBIDDEN.items():
        if directive in text:
            raise GrammarError(f"{directive} is not supported; {remedy}")
    if match := _FORBIDDEN_ATTRIBUTE.search(text):
        raise GrammarError(f"the attribute {match[1]} is not supported")
    if "::=" not in text:
        return text
    try:
        return str(any_to_lark(text))
    except Exception as error:
        raise GrammarError(f"the GBNF grammar cannot be read: {error}") from error


_KINDS = {
    "json": "The schema cannot be enforced",
    "regex": "The regular expression cannot be enforced",
    "choice": "The choices cannot be enforced",
    "grammar": "The grammar cannot be enforced",
    "tools": "The arguments of a tool cannot be enforced",
}


def _message(kind: str, error: ValueError) -> str:
    return f"{_KINDS[kind]}: {_explained(str(error))}."


def _explained(text: str) -> str:
    """The engine's words, in terms of the request where they have such."""
    words = " ".join(text.split()).removesuffix(" <non-verbose/>").rstrip(".")[:500]
    if words in _EMPTY or "Unsatisfiable schema" in words:
        return "nothing satisfies it"
    for part, keyword in _ENGINE_WORDS.items():
        if part in words:
            return f"{keyword}: {words}"
    return words


_EMPTY = ("no text satisfies it", "NoExtension", "NoExtensionBias")
_TOO_COMPLEX = "it is too complex, make it smaller or its repetitions fewer"
_ENGINE_WORDS = {
    "patternProperty": "patternProperties",
    "min/maxProperties": "minProperties or maxProperties",
    "'multipleOf'": "multipleOf",
    "float range": "minimum or maximum",
    "integer range": "minimum or maximum",
    "circular references": "$ref",
    "too many expressions": _TOO_COMPLEX,
    "Too many items": _TOO_COMPLEX,
    "Current row has": _TOO_COMPLEX,
    "fuel exhausted": _TOO_COMPLEX,
    "too big": _TOO_COMPLEX,
    "schema too large": _TOO_COMPLEX,
    "Unable to determine if regex is empty": _TOO_COMPLEX,
}
