"""One loaded model, leased by many requests; a swap waits until every lease has ended.

First come, first served: a request for the loaded model that arrives behind a waiting swap waits
for it, so neither side can starve the other. Used from one event loop only.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from flm.errors import LoadingError, QueueFullError, ShuttingDownError


class Keyed(Protocol):
    """What a slot holds: something that knows which model it is."""

    @property
    def model_id(self) -> str:
        """The id that requests ask for."""


M = TypeVar("M", bound=Keyed)
Exchange = Callable[[M | None, str], Awaitable[M]]
"""Unload the first, load the second. On failure it raises ``ExchangeFailedError``, which carries
the model that is loaded afterwards (None if there is none)."""


class ExchangeFailedError(Exception, Generic[M]):
    """A swap did not work; ``left`` is what remains loaded, ``error`` goes to who asked."""

    def __init__(self, left: M | None, error: Exception) -> None:
        super().__init__(str(error))
        self.left = left
        self.error = error


@dataclass(slots=True, eq=False)
class _Waiter(Generic[M]):
    model_id: str
    granted: asyncio.Future[M]
    is_reload: bool = False


class ModelSlot(Generic[M]):
    """Holds the loaded model and the line of those who wait for one."""

    def __init__(self, exchange: Exchange[M], *, max_waiting: int) -> None:
        self._exchange = exchange
        self._max_waiting = max_waiting
        self._current: M | None = None
        self._num_leases = 0
        self._waiters: deque[_Waiter[M]] = deque()
        self._swap: asyncio.Task[None] | None = None
        self._is_closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def current(self) -> M | None:
        """The loaded model; None while there is none."""
        return self._current

    @property
    def is_loading(self) -> bool:
        """True while a model is being exchanged."""
        return self._swap is not None

    @property
    def num_leases(self) -> int:
        """Requests that hold the loaded model now."""
        return self._num_leases

    @asynccontextmanager
    async def lease(self, model_id: str) -> AsyncIterator[M]:
        """Hold the model ``model_id``, swapping it in first if another is loaded.

        Raises:
            QueueFullError: too many requests wait already.
            ShuttingDownError: the slot is closed.
            LoadingError: nothing is loaded yet.
        """
        model = await self._acquire(model_id, is_reload=False)
        try:
            yield model
        finally:
            self._release()

    async def load(self, model_id: str) -> None:
        """Load ``model_id`` afresh once every lease has ended, even if it is the loaded one."""
        await self._acquire(model_id, is_reload=True)
        self._release()

    async def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no lease is held, for at most ``timeout_s``; True when there is none."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def close(self) -> M | None:
        """Refuse every later lease and every waiting one; give the model up."""
        self._is_closed = True
        for waiter in self._waiters:
            _fail(waiter, ShuttingDownError("The server is shutting down; try another one."))
        self._waiters.clear()
        if self._swap is not None:
            self._swap.cancel()
        model, self._current = self._current, None
        return model

    async def _acquire(self, model_id: str, *, is_reload: bool) -> M:
        if self._is_closed:
            raise ShuttingDownError("The server is shutting down; try another one.")
        if self._current is None and not is_reload:
            raise LoadingError("The model is still being loaded; try again shortly.")
        if len(self._waiters) >= self._max_waiting:
            raise QueueFullError(
                f"{len(self._waiters)} requests already wait for a model to be swapped in; "
                "try again later or raise --q-len."
            )
        waiter = _Waiter[M](model_id, asyncio.get_running_loop().create_future(), is_reload)
        self._waiters.append(waiter)
        self._pump()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            self._forget(waiter)
            raise

    def _forget(self, waiter: _Waiter[M]) -> None:
        # Grant and cancellation can meet: then the lease was counted and must be given back.
        if waiter in self._waiters:
            self._waiters.remove(waiter)
            self._pump()
        elif not waiter.granted.cancelled() and waiter.granted.exception() is None:
            self._release()

    def _release(self) -> None:
        self._num_leases -= 1
        if self._num_leases == 0:
            self._idle.set()
        self._pump()

    def _pump(self) -> None:
        """Grant from the head of the line as far as the loaded model allows."""
        while self._waiters and self._swap is None:
            head = self._waiters[0]
            is_loaded = self._current is not None and self._current.model_id == head.model_id
            if is_loaded and not head.is_reload:
                self._waiters.popleft()
                self._grant(head)
            elif self._num_leases == 0:
                self._swap = asyncio.create_task(self._run_swap(head))
            else:
                return

    def _grant(self, waiter: _Waiter[M]) -> None:
        if not waiter.granted.done() and self._current is not None:
            self._num_leases += 1
            self._idle.clear()
            waiter.granted.set_result(self._current)

    async def _run_swap(self, head: _Waiter[M]) -> None:
        error: Exception | None = None
        try:
            self._current = await self._exchange(self._current, head.model_id)
        except ExchangeFailedError as failure:
            self._current, error = failure.left, failure.error
        self._swap = None
        if head in self._waiters:
            self._waiters.remove(head)
            if error is None:
                self._grant(head)
            else:
                _fail(head, error)
        self._pump()


def _fail(waiter: _Waiter[M], error: Exception) -> None:
    if not waiter.granted.done():
        waiter.granted.set_exception(error)
