"""Grammar masks that are made while the forward runs.

Which tokens may come next depends on those that the sequence has taken, and they are known before
the forward that gives their logits. The forward needs no Python, so a mask costs its step nothing
but what it takes from the cores. Most masks take less time than it takes to ask another thread for
them; those are made when they are needed.
"""

import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Final

from flm.engine.protocol import Grammar

EARLY_S: Final = 1e-4
"""A grammar whose last mask took so many seconds has the next one made early."""


class EarlyMask:
    """The mask of one grammar at its present place, made by another thread."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self.seconds = 0.0
        self._mask: bytes | None = None
        self._error: BaseException | None = None

    def make(self) -> None:
        """Make it; an error waits for who takes it. ``seconds`` says how long it took."""
        began = time.perf_counter()
        try:
            self._mask = self._grammar.mask()
        except BaseException as error:  # noqa: BLE001 - raised again where the mask is taken
            self._error = error
        self.seconds = time.perf_counter() - began

    def take(self) -> bytes | None:
        """What ``Grammar.mask`` gave. Raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._mask


class MaskMaker:
    """A thread for masks, started when the first one is wanted.

    One is enough: the grammar engine holds Python's lock while it makes a mask. An executor would
    do the same for four times the work around it, as much as a mask takes.
    """

    def __init__(self) -> None:
        self._wanted: SimpleQueue[Sequence[EarlyMask] | None] = SimpleQueue()
        self._done: SimpleQueue[None] = SimpleQueue()
        self._is_running = False

    @contextmanager
    def making(self, masks: Sequence[EarlyMask]) -> Iterator[None]:
        """Make masks while the block runs; all are made when it ends, however it does."""
        if not masks:
            yield
            return
        self._start()
        self._wanted.put(masks)
        try:
            yield
        finally:
            self._done.get()

    def _start(self) -> None:
        if not self._is_running:
            self._is_running = True
            queues = (self._wanted, self._done)
            threading.Thread(target=_work, args=queues, name="flm-masks", daemon=True).start()
            weakref.finalize(self, self._wanted.put, None)


def _work(wanted: "SimpleQueue[Sequence[EarlyMask] | None]", done: "SimpleQueue[None]") -> None:
    while (masks := wanted.get()) is not None:
        for mask in masks:
            mask.make()
        done.put(None)
