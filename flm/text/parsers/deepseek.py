"""DeepSeek. R1 and V3 write a call as ``function<sep>NAME`` and a block of JSON in backquotes, V3.1
as ``NAME<sep>{…}``; each stands between the markers of a call, all between those of the calls."""

from flm.text.parsers.calls import CallParser, read_arguments
from flm.text.parsers.source import NoCallError, Steps

_END = "<｜tool▁calls▁end｜>"
_CALL, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
_SEP = "<｜tool▁sep｜>"
_FENCE = "```"


class DeepSeekParser(CallParser):
    """A feed/flush machine for both forms."""

    begin = "<｜tool▁calls▁begin｜>"
    end = _CALL_END
    markers = frozenset({begin, end, _END, _CALL, _SEP})

    def calls(self) -> Steps[None]:
        """All calls of a section, and its end."""
        source = self.source
        yield from source.skip_space()
        yield from source.expect(_CALL)
        while True:
            yield from self._call()
            yield from source.skip_space()
            if not (yield from source.accept(_CALL)):
                break
        yield from source.accept(_END)

    def _call(self) -> Steps[None]:
        source = self.source
        name = (yield from source.until(_SEP)).strip()
        yield from source.expect(_SEP)
        if name == "function":
            name = (yield from source.word("\n")).strip()
        if not name:
            raise NoCallError
        is_fenced = bool((yield from source.looks_past_space(_FENCE)))
        if is_fenced:
            yield from source.until("\n")
            yield from source.skip_space()
            yield from source.accept(f"{_FENCE}json")
        yield from source.skip_space()
        call = self.open_call()
        call.name = name
        yield from read_arguments(source, call)
        self.close_call(call)
        yield from source.skip_space()
        if is_fenced:
            yield from source.accept(_FENCE)
            yield from source.skip_space()
        yield from source.accept(self.end)
