"""Stop sequences applied on this side, over a stream."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from flm.router.response import Delta, StreamEnd, StreamEvent, StreamStart, TextDelta


class StopCutter:
    """Passes events on until a sequence appears in the text, of whichever parts it is made.

    The earliest match wins, and how the text is cut into deltas changes nothing. What could be the
    beginning of a sequence is held back until it is known.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(stop)
        self._held: list[Delta] = []
        self.is_cut = False
        """True once a sequence was found; nothing may be fed any more."""

    def feed(self, event: StreamEvent) -> Iterator[StreamEvent]:
        """The events that are safe to show now, the end in place of a sequence."""
        if isinstance(event, StreamStart):
            yield event
        elif isinstance(event, StreamEnd):
            found = self._first_match(self._text())
            if found is not None:
                yield from self._cut(found)
            else:
                yield from self.flush()
                yield event
        else:
            self._held.append(event)
            if isinstance(event, TextDelta):
                yield from self._settle()
            elif not any(isinstance(item, TextDelta) for item in self._held):
                yield from self.flush()

    def flush(self) -> Iterator[StreamEvent]:
        """Everything that is held."""
        yield from self._held
        self._held = []

    def _text(self) -> str:
        return "".join(item.text for item in self._held if isinstance(item, TextDelta))

    def _settle(self) -> Iterator[StreamEvent]:
        text = self._text()
        match, opening = self._first_match(text), self._first_opening(text)
        if match is not None and (opening is None or match < opening):
            yield from self._cut(match)
            return
        yield from self._release(len(text) if opening is None else opening)

    def _first_match(self, text: str) -> int | None:
        found = [place for item in self._stop if (place := text.find(item)) >= 0]
        return min(found, default=None)

    def _first_opening(self, text: str) -> int | None:
        """Where the text's end could be the beginning of a sequence."""
        longest = max(len(item) for item in self._stop)
        for place in range(max(0, len(text) - longest + 1), len(text)):
            tail = text[place:]
            if any(len(tail) < len(item) and item.startswith(tail) for item in self._stop):
                return place
        return None

    def _release(self, end: int) -> Iterator[StreamEvent]:
        """Whole events with text before ``end``, and others up to the first that is held."""
        place = 0
        while self._held:
            event = self._held[0]
            length = len(event.text) if isinstance(event, TextDelta) else 0
            if place + length > end:
                return
            place += length
            yield self._held.pop(0)

    def _cut(self, end: int) -> Iterator[StreamEvent]:
        self.is_cut = True
        place = 0
        for event in self._held:
            if isinstance(event, TextDelta):
                rest = end - place
                if rest < len(event.text):
                    # Log probabilities go with whole deltas only.
                    yield replace(event, text=event.text[:rest], logprobs=())
                    break
                place += len(event.text)
            yield event
        self._held = []
        yield StreamEnd("stop")
