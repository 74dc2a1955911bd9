"""Calls in the manner of Python: ``[f(k="v"), g(n=1)]``.

Llama writes the list alone, as the whole reply; then only the names of known tools count. LFM2 puts
it between markers, and may write the calls as objects of JSON there.
"""

import json

from flm.text.parsers.calls import CallParser
from flm.text.parsers.mistral import read_list
from flm.text.parsers.relaxed import NAME, PYTHON, TOOL_NAME, read_object, read_value
from flm.text.parsers.source import NoCallError, Source, Steps


class PythonicParser(CallParser):
    """A feed/flush machine. A call is told when it is complete."""

    begin = "<|python_tag|>"
    markers = frozenset({begin})

    def run(self) -> Steps[None]:
        """Calls where the reply begins, or free text in which the tag may come."""
        if (yield from self.source.looks_past_space("[")):
            yield from self.try_calls()
        yield from super().run()

    def calls(self) -> Steps[None]:
        """The list."""
        yield from self.source.skip_space()
        yield from read_calls(self, is_marked=False)


class LFM2Parser(CallParser):
    """A feed/flush machine. A call is told when it is complete."""

    begin = "<|tool_call_start|>"
    end = "<|tool_call_end|>"
    markers = frozenset({begin, end})

    def calls(self) -> Steps[None]:
        """The list and the closing marker."""
        source = self.source
        yield from source.skip_space()
        is_json = yield from source.looks_at('[{"', '[ {"', '[\n{"')
        if is_json:
            yield from read_list(self)
        else:
            yield from read_calls(self, is_marked=True)
        yield from source.skip_space()
        yield from source.accept(self.end)


def read_calls(parser: CallParser, *, is_marked: bool) -> Steps[None]:
    """Read a list of calls.

    Raises:
        NoCallError: it is something else, or (unless ``is_marked``) calls what is no tool.
    """
    source = parser.source
    yield from source.expect("[")
    yield from source.skip_space()
    while True:
        name = (yield from source.word("([]{}\"'\n")).strip()
        if TOOL_NAME.fullmatch(name) is None or not (is_marked or parser.is_known(name)):
            raise NoCallError
        arguments = yield from _read_arguments(parser)
        yield from parser.whole_call(name, arguments)
        yield from source.skip_space()
        if not (yield from source.accept(",")):
            break
        yield from source.skip_space()
    # A reply that was cut behind a whole call has no bracket.
    if (yield from source.peek()):
        yield from source.expect("]")


def _read_arguments(parser: CallParser) -> Steps[str]:
    source = parser.source
    yield from source.expect("(")
    yield from source.skip_space()
    members: list[str] = []
    while not (yield from source.accept(")")):
        members += yield from _read_member(source)
        yield from source.skip_space()
        if not (yield from source.looks_at(")")):
            yield from source.expect(",")
            yield from source.skip_space()
    return f"{{{', '.join(members)}}}"


def _read_member(source: Source) -> Steps[list[str]]:
    """``key=value``, or ``**`` and an object with any keys."""
    if (yield from source.accept("**")):
        yield from source.skip_space()
        inner = (yield from read_object(source, PYTHON))[1:-1]
        return [inner] if inner else []
    key = (yield from source.word("=,()[]{}\"'")).strip()
    if NAME.fullmatch(key) is None:
        raise NoCallError
    yield from source.expect("=")
    value = yield from read_value(source, PYTHON)
    return [f"{json.dumps(key)}: {value}"]
