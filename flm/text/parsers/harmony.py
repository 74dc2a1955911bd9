"""Harmony, the format of gpt-oss: messages of an assistant in channels.

``<|channel|>analysis`` is reasoning, ``final`` is the answer, and a message
``to=functions.NAME`` is a call whose body is its arguments. Other commentary is shown as content.
Each message is ``header<|message|>body`` and one of the end markers; the prompt has begun the first
header.
"""

import re
from collections.abc import Callable

from flm.text.parsers.calls import CallParser, read_arguments
from flm.text.parsers.source import NoCallError, Steps
from flm.text.parsers.think import partial_len
from flm.types import Channel

_START, _CHANNEL, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_ENDS = ("<|end|>", "<|return|>", "<|call|>")
_CONSTRAIN = "<|constrain|>"
_RECIPIENT = re.compile(r"to=functions\.([A-Za-z0-9_.-]+)", re.ASCII)
_CHANNEL_NAME = re.compile(re.escape(_CHANNEL) + r"\s*(\w+)")


class HarmonyParser(CallParser):
    """A feed/flush machine. Without tools (``has_tools`` unset), calls are shown as content."""

    markers = frozenset({_START, _CHANNEL, _MESSAGE, _CONSTRAIN, *_ENDS})
    end = "<|call|>"

    def __init__(self, is_known: Callable[[str], bool], *, has_tools: bool) -> None:
        super().__init__(is_known)
        self._has_tools = has_tools
        self._name = ""  # of the call that is read
        self.channel: Channel = "content"

    def run(self) -> Steps[None]:
        """Messages to the end of the reply."""
        source = self.source
        while (yield from source.peek()):
            if (yield from source.looks_past_space(_START, _CHANNEL, _MESSAGE, "to=", "assistant")):
                yield from self._message()
            else:
                # Not a header: the model has left the format, and what it says is the answer.
                yield from self._text("content")

    def _message(self) -> Steps[None]:
        source = self.source
        try:
            header = yield from source.until(_MESSAGE)
        except NoCallError:
            is_markup = _CHANNEL in source.behind or _START in source.behind
            yield from source.cut_markup(self.channel) if is_markup else source.cut()
            return
        yield from source.expect(_MESSAGE)
        call = _RECIPIENT.search(header)
        if call is not None and self._has_tools:
            self.channel = "content"
            if (yield from self._try_call(call[1])):
                return
        found = _CHANNEL_NAME.search(header)
        is_reasoning = found is not None and found[1] == "analysis"
        channel: Channel = "reasoning" if is_reasoning else "content"
        yield from source.cut_markup(channel)
        yield from self._text(channel)

    def _try_call(self, name: str) -> Steps[bool]:
        self._name = name
        return (yield from self.try_calls())

    def calls(self) -> Steps[None]:
        """The body of a call."""
        source = self.source
        yield from source.skip_space()
        call = self.open_call()
        call.name = self._name
        if (yield from source.looks_at(*_ENDS)):
            yield from call.add("{}", is_last=True)
        else:
            yield from read_arguments(source, call)
        self.close_call(call)
        yield from source.skip_space()
        yield from self._end()

    def _text(self, channel: Channel) -> Steps[None]:
        """A body, as it comes."""
        self.channel = channel
        source = self.source
        while True:
            ahead = source.ahead
            found = min(
                (at for end in (*_ENDS, _START) if (at := ahead.find(end)) >= 0), default=-1
            )
            held = max(partial_len(ahead, end) for end in (*_ENDS, _START))
            certain = found if found >= 0 else len(ahead) - held
            if found < 0 and source.is_complete:
                certain = len(ahead)
            source.skip(certain)
            yield from source.cut(channel)
            if found >= 0:
                yield from self._end()
                return
            if source.is_complete:
                return
            yield None

    def _end(self) -> Steps[None]:
        found = yield from self.source.looks_at(*_ENDS)
        self.source.skip(len(found))
        yield from self.source.cut_markup(self.channel)
