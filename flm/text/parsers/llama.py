"""Llama 3: the reply is ``{"name": …, "parameters": {…}}``, with or without ``<|python_tag|>``.

Without the tag there is nothing that tells a call from an answer in JSON but its keys and the name
of a known tool, so only the beginning of a reply is looked at. Several calls have ``;`` between
them.
"""

from flm.text.parsers.calls import CallParser, read_object_call
from flm.text.parsers.source import Steps


class LlamaParser(CallParser):
    """A feed/flush machine."""

    begin = "<|python_tag|>"
    markers = frozenset({begin})

    def run(self) -> Steps[None]:
        """A call where the reply begins, or free text in which the tag may come."""
        if (yield from self.source.looks_past_space("{")):
            yield from self.try_calls()
        yield from super().run()

    def calls(self) -> Steps[None]:
        """Calls with semicolons between them."""
        source = self.source
        while True:
            yield from source.skip_space()
            yield from read_object_call(self, is_marked=False)
            if not (yield from source.looks_past_space(";", ",")):
                return
            yield from source.skip_space()
            yield from source.take()
            yield from source.skip_space()
            if not (yield from source.peek()):
                return
