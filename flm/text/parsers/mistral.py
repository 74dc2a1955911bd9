"""Mistral: ``[TOOL_CALLS][{"name": …, "arguments": {…}}, …]`` and, newer, a marker for each call:
``[TOOL_CALLS]name[ARGS]{…}``, with ``[CALL_ID]id`` before ``[ARGS]`` in some versions."""

from flm.text.parsers.calls import CallParser, read_arguments, read_object_call
from flm.text.parsers.source import NoCallError, Steps

_ARGS, _CALL_ID = "[ARGS]", "[CALL_ID]"


class MistralParser(CallParser):
    """A feed/flush machine for both forms."""

    begin = "[TOOL_CALLS]"
    markers = frozenset({begin, _ARGS, _CALL_ID})

    def calls(self) -> Steps[None]:
        """A list of calls, or one."""
        yield from self.source.skip_space()
        if (yield from self.source.peek()) == "[":
            yield from read_list(self)
        else:
            yield from self._named()

    def _named(self) -> Steps[None]:
        source = self.source
        name = (yield from source.word("[{")).strip()
        if not name:
            raise NoCallError
        if (yield from source.accept(_CALL_ID)):
            yield from source.until(_ARGS)
        yield from source.accept(_ARGS)
        yield from source.skip_space()
        call = self.open_call()
        call.name = name
        yield from read_arguments(source, call)
        self.close_call(call)


def read_list(parser: CallParser) -> Steps[None]:
    """Read an array of calls written as objects.

    Raises:
        NoCallError: it is something else.
        BrokenCallError: the arguments of a call go wrong after they were told.
    """
    source = parser.source
    yield from source.expect("[")
    yield from source.skip_space()
    while True:
        yield from read_object_call(parser, is_marked=True)
        yield from source.skip_space()
        if not (yield from source.accept(",")):
            break
        yield from source.skip_space()
    # A reply that was cut behind a whole call has no bracket.
    if (yield from source.peek()):
        yield from source.expect("]")
