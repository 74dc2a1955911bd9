"""Hermes and Qwen: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>`` for each call."""

from flm.text.parsers.calls import CallParser, read_object_call
from flm.text.parsers.source import Steps


class HermesParser(CallParser):
    """A feed/flush machine. The closing tag may be missing at the end of a reply."""

    begin = "<tool_call>"
    end = "</tool_call>"
    markers = frozenset({begin, end})

    def calls(self) -> Steps[None]:
        """One call and its closing tag."""
        yield from self.source.skip_space()
        yield from read_object_call(self, is_marked=True)
        yield from self.source.skip_space()
        yield from self.source.accept(self.end)
