"""Gemma 4: ``<|tool_call>call:NAME{key:<|"|>text<|"|>,n:1}<tool_call|>`` for each call."""

from flm.text.parsers.calls import CallParser
from flm.text.parsers.relaxed import GEMMA, TOOL_NAME, read_object
from flm.text.parsers.source import NoCallError, Steps


class GemmaParser(CallParser):
    """A feed/flush machine. A call is told when it is complete."""

    begin = "<|tool_call>"
    end = "<tool_call|>"
    markers = frozenset({begin, end, GEMMA.quote})

    def calls(self) -> Steps[None]:
        """One call and its closing marker."""
        source = self.source
        yield from source.skip_space()
        yield from source.expect("call:")
        name = (yield from source.word("{\n")).strip()
        if TOOL_NAME.fullmatch(name) is None:
            raise NoCallError
        arguments = yield from read_object(source, GEMMA)
        yield from source.skip_space()
        yield from self.whole_call(name, arguments)
        yield from source.accept(self.end)
