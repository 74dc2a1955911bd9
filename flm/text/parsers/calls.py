"""What readers of tool calls share: free text, calls in it, and the way back when it is no call."""

import json
from collections.abc import Callable

from flm.text.parsers.base import CallPart, Piece
from flm.text.parsers.json_text import JSONScanner, read_string, scan_some, skip_value
from flm.text.parsers.source import NoCallError, Source, Steps
from flm.text.parsers.think import partial_len
from flm.types import Channel

ARGUMENT_KEYS = frozenset({"arguments", "parameters"})


class BrokenCallError(Exception):
    """The arguments of a call that has been told go wrong, so it cannot be taken back."""


class OpenCall:
    """One call as it is read. Nothing of it is told before its name and the beginning of its
    arguments are known."""

    def __init__(self, source: Source, index: int) -> None:
        self.name: str | None = None
        self.is_told = False
        self.is_whole = False
        self._source = source
        self._index = index
        self._held = ""

    def add(self, arguments: str, *, is_last: bool = False) -> list[Piece]:
        """More of the arguments."""
        self._held += arguments
        self.is_whole = self.is_whole or is_last
        return self.tell()

    def tell(self) -> list[Piece]:
        """What can be told and has not been."""
        if self.name is None or not self._held:
            return []
        part = CallPart(self._index, None if self.is_told else self.name, self._held, self.is_whole)
        self.is_told, self._held = True, ""
        return [self._source.cut_call(part)]


class CallParser:
    """Free text with calls in it; a dialect says how one begins and how it is read.

    White space beside a call is markup. Output that turns out to be no call is content, as it
    stands. A call whose arguments break after it was told keeps everything up to its ``end``.
    """

    channel: Channel = "content"
    markers: frozenset[str] = frozenset()
    begin = ""
    end = ""

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        self.source = Source()
        self.is_known = is_known
        self._num_calls = 0
        self._current: OpenCall | None = None
        self._steps = self.run()

    def feed(self, text: str) -> list[Piece]:
        """Take output in, give out what is certain."""
        self.source.add(text)
        return self._drive()

    def flush(self) -> list[Piece]:
        """The rest, as what it is taken for when nothing follows."""
        self.source.end()
        return self._drive()

    def _drive(self) -> list[Piece]:
        pieces: list[Piece] = []
        for item in self._steps:
            if item is None:
                break
            pieces.append(item)
        return pieces

    # --- for the dialects ----------------------------------------------------------------------

    def run(self) -> Steps[None]:
        """A whole reply."""
        while (yield from self.free_text()):
            yield from self.try_calls()

    def calls(self) -> Steps[None]:
        """The calls of one section, behind its ``begin``.

        Raises:
            NoCallError: it is something else.
        """
        raise NotImplementedError

    def open_call(self) -> OpenCall:
        """The next call."""
        self._current = OpenCall(self.source, self._num_calls)
        return self._current

    def close_call(self, call: OpenCall) -> None:
        """``call`` has been told to its end."""
        assert call.is_told
        self._num_calls += 1
        self._current = None

    def whole_call(self, name: str, arguments: str) -> Steps[None]:
        """Tell a call at once."""
        call = self.open_call()
        call.name = name
        yield from call.add(arguments, is_last=True)
        self.close_call(call)

    def try_calls(self) -> Steps[bool]:
        """Read calls; False when it was something else."""
        try:
            yield from self.calls()
        except NoCallError:
            if self._current is not None and self._current.is_told:
                self.close_call(self._current)
            yield from self.source.cut()
            return False
        except BrokenCallError:
            yield from self._broken()
        yield from self.source.skip_space()
        yield from self.source.cut_markup()
        return True

    def free_text(self) -> Steps[bool]:
        """Content up to the next ``begin``, which is read; False at the end of the reply."""
        source = self.source
        while True:
            ahead = source.ahead
            found = ahead.find(self.begin)
            certain = found if found >= 0 else len(ahead) - partial_len(ahead, self.begin)
            if found < 0 and source.is_complete:
                source.skip(len(ahead))
                yield from source.cut()
                return False
            text_len = len(ahead[:certain].rstrip())
            source.skip(text_len)
            yield from source.cut()
            if found >= 0:
                source.skip(found - text_len + len(self.begin))
                return True
            yield None

    def _broken(self) -> Steps[None]:
        call = self._current
        assert call is not None
        yield from call.add((yield from self.source.rest_until(self.end)))
        # A marker alone adds nothing to the arguments, and is still to be accounted for.
        yield from self.source.cut_markup()
        self.close_call(call)


def read_object_call(parser: CallParser, *, is_marked: bool) -> Steps[None]:
    """Read one call written as an object with a name and arguments, in any order.

    Where no marker came before (``is_marked`` unset), an object with other keys, or the name of no
    tool, is no call.

    Raises:
        NoCallError: it is something else.
        BrokenCallError: its arguments go wrong after they were told.
    """
    call = parser.open_call()
    yield from _members(parser, call, is_marked=is_marked, is_inner=False)
    if call.name is not None and not call.is_whole and is_marked:
        yield from call.add("{}", is_last=True)
    if not call.is_told:
        raise NoCallError
    parser.close_call(call)


def _members(parser: CallParser, call: OpenCall, *, is_marked: bool, is_inner: bool) -> Steps[None]:
    source = parser.source
    yield from source.expect("{")
    yield from source.skip_space()
    while not (yield from source.accept("}")):
        key = yield from read_string(source)
        yield from source.skip_space()
        yield from source.expect(":")
        yield from source.skip_space()
        if key == "function" and not is_inner and (yield from source.looks_at("{")):
            yield from _members(parser, call, is_marked=is_marked, is_inner=True)
        else:
            yield from _member(parser, call, key, is_marked=is_marked)
        yield from source.skip_space()
        if call.is_whole and call.is_told and (yield from source.peek()) not in (",", "}"):
            return  # models forget the last brace; what follows is read by whoever called
        if (yield from source.peek()) != "}":
            yield from source.expect(",")
            yield from source.skip_space()


def _member(parser: CallParser, call: OpenCall, key: str, *, is_marked: bool) -> Steps[None]:
    source = parser.source
    if key in ("name", "function") and call.name is None:
        name = yield from read_string(source)
        if not name or not (is_marked or parser.is_known(name)):
            raise NoCallError
        call.name = name
        yield from call.tell()
    elif key in ARGUMENT_KEYS and not call.is_whole:
        yield from read_arguments(source, call)
    elif is_marked or key in ("id", "type"):
        yield from skip_value(source)
    else:
        raise NoCallError


def read_arguments(source: Source, call: OpenCall) -> Steps[None]:
    """Read the arguments of ``call``: an object, told as it comes; an object as a string of JSON;
    or null for none.

    Raises:
        NoCallError: they are something else.
        BrokenCallError: they go wrong after they were told.
    """
    char = yield from source.peek()
    if char == "{":
        yield from _stream_object(source, call)
    elif char == '"':
        yield from call.add(_object_text((yield from read_string(source))), is_last=True)
    else:
        yield from source.expect("null")
        yield from call.add("{}", is_last=True)


def _stream_object(source: Source, call: OpenCall) -> Steps[None]:
    scanner = JSONScanner()
    while not scanner.is_done:
        shown = yield from scan_some(source, scanner)
        yield from call.add(shown, is_last=scanner.is_done)
        if scanner.is_faulty:
            raise BrokenCallError if call.is_told else NoCallError


def _object_text(text: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise NoCallError from None
    if not isinstance(value, dict):
        raise NoCallError
    return text
