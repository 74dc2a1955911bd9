"""The engine's thread, and its door for all other threads."""

import threading
from collections.abc import Callable, Sequence

from flm.engine.engine import Engine
from flm.engine.protocol import (
    CachedPrefix,
    EngineEvent,
    EngineRequest,
    EngineStats,
    Failed,
    Finished,
    Sink,
)
from flm.engine.sequence import Sequence as EngineSequence
from flm.errors import (
    EngineDeadError,
    FlmError,
    InternalError,
    QueueFullError,
    ShuttingDownError,
)
from flm.log import logger


def _dead() -> FlmError:
    return EngineDeadError("The engine has stopped; see the server's log and restart the server.")


def _closing() -> FlmError:
    return ShuttingDownError("The server is shutting down; send the request again later.")


def _ignore(_: EngineEvent) -> None:
    """Stand in for the sink of a sequence whose own has failed."""


def _num_tokens(prompts: Sequence[tuple[int, ...]]) -> int:
    """Tokens of all prompts; the choices of a request share one, which counts once."""
    return sum({id(prompt): len(prompt) for prompt in prompts}.values())


class EngineWorker:
    """An ``EngineClient`` over a thread of its own.

    Submissions and aborts wait in a box and are taken between two steps. As many sequences are
    let in as may run and wait together; whoever would exceed that is refused whole.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._capacity = engine.config.max_running + engine.config.max_waiting
        # Guards everything below.
        self._wake = threading.Condition()
        self._sinks: dict[str, Sink] = {}
        self._arrivals: list[EngineSequence] = []
        self._aborts: list[tuple[str, int | None]] = []
        self._is_closing = False
        self._is_dead = False
        self._stats = engine.stats()
        self._thread = threading.Thread(target=self._run, name="flm-engine", daemon=True)

    def start(self) -> None:
        """Start the thread. Submissions made before wait for it."""
        self._thread.start()

    # --- EngineClient ----------------------------------------------------------------------

    @property
    def max_kv_tokens(self) -> int:
        """Positions the KV pool can hold: the longest sequence it can ever run."""
        return self._engine.max_kv_tokens

    def submit(
        self,
        requests: Sequence[EngineRequest],
        sink: Sink,
        *,
        on_admit: Callable[[], None] | None = None,
    ) -> None:
        """Queue all of ``requests`` or none; see ``EngineClient``.

        Raises:
            InvalidRequestError: an empty prompt, or token ids that the model does not have.
            ContextLengthError: a request that the whole pool could not hold.
            QueueFullError: the waiting line has no room for all of them or for their prompts.
            EngineDeadError: the engine thread has ended.
            ShuttingDownError: ``close`` was called.
        """
        for request in requests:
            self._engine.check(request)
        with self._wake:
            self._check_open()
            self._check_room(requests)
            if on_admit is not None:
                on_admit()
            for request in requests:
                self._arrivals.append(self._engine.new_sequence(request))
                self._sinks[request.id] = sink
            self._wake.notify()

    def _check_open(self) -> None:
        if self._is_dead:
            raise _dead()
        if self._is_closing:
            raise _closing()

    def _check_room(self, requests: Sequence[EngineRequest]) -> None:
        ids = {request.id for request in requests}
        if len(ids) < len(requests) or not ids.isdisjoint(self._sinks):
            raise InternalError("Two sequences with the same id were submitted.")
        if len(self._sinks) + len(requests) > self._capacity:
            config = self._engine.config
            raise QueueFullError(
                f"The server is busy: {len(self._sinks)} sequences are running or waiting, this "
                f"request adds {len(requests)}, and {config.max_running} may run while "
                f"{config.max_waiting} wait. Try again later, or start the server with a larger "
                "--q-len."
            )
        self._check_waiting_tokens(requests)

    def _check_waiting_tokens(self, requests: Sequence[EngineRequest]) -> None:
        """Whoever finds nothing waiting is let in, however long its prompts are."""
        limit = self._engine.config.max_waiting_tokens
        arrived = [sequence.request.prompt_ids for sequence in self._arrivals]
        waiting = [*self._engine.waiting_prompts(), *arrived]
        if limit is None or not waiting:
            return
        num_waiting = _num_tokens(waiting)
        num_added = _num_tokens([request.prompt_ids for request in requests])
        if num_waiting + num_added > limit:
            raise QueueFullError(
                f"The server is busy: prompts of {num_waiting} tokens are waiting, this request "
                f"adds {num_added}, and {limit} may wait. Try again later, or start the server "
                "with a larger --q-tokens."
            )

    def abort(self, request_id: str, *, keep_tokens: int | None = None) -> None:
        """End a sequence before the next step; see ``EngineClient``."""
        with self._wake:
            if request_id in self._sinks:
                self._aborts.append((request_id, keep_tokens))
                self._wake.notify()

    def cached_prefix(self, prompt_ids: Sequence[int]) -> CachedPrefix:
        """What the prefix cache would give this prompt now. Changes nothing."""
        return self._engine.cached_prefix(prompt_ids)

    def stats(self) -> EngineStats:
        """The state at the end of the last step."""
        return self._stats

    def check_integrity(self) -> None:
        """Raise AssertionError if a block is leaked, shared wrongly, or indexed wrongly."""
        self._engine.check_integrity()

    def close(self, *, timeout: float = 10.0) -> None:
        """End the thread after its current step; what is still there gets ``Failed``."""
        with self._wake:
            self._is_closing = True
            self._wake.notify()
        if self._thread.is_alive():
            self._wait_for_thread(timeout)
        else:
            self._end(_closing)

    def _wait_for_thread(self, timeout: float) -> None:
        if self._thread is threading.current_thread():
            return
        self._thread.join(timeout)
        if self._thread.is_alive():
            logger.warning("The engine is still in a step after %.0f s; not waiting.", timeout)

    # --- the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException:  # noqa: BLE001
            logger.exception("The engine has stopped.")
            with self._wake:
                self._is_dead = True
            self._end(_dead)
            return
        self._end(_closing)

    def _turn(self) -> bool:
        """Take what has come in and run one step; False when it is time to end."""
        with self._wake:
            while not (self._is_closing or self._arrivals or self._aborts or self._engine.has_work):
                self._wake.wait()
            if self._is_closing:
                return False
            arrivals, self._arrivals = self._arrivals, []
            aborts, self._aborts = self._aborts, []
            # Under the lock, so that whoever submits meanwhile counts them once.
            for sequence in arrivals:
                self._engine.enqueue(sequence)
        events: list[EngineEvent] = []
        for request_id, keep_tokens in aborts:
            events += self._engine.abort(request_id, keep_tokens)
        if events:
            self._publish(events)
        self._publish(self._engine.step())
        return True

    def _publish(self, events: Sequence[EngineEvent]) -> None:
        """Hand out events. Whoever sees its sequence end finds its place and blocks free."""
        ended = [event.request_id for event in events if isinstance(event, Finished | Failed)]
        self._stats = self._engine.stats()
        with self._wake:
            sinks = {event.request_id: self._sinks[event.request_id] for event in events}
            for request_id in ended:
                del self._sinks[request_id]
        for event in events:
            if not self._send(sinks[event.request_id], event):
                sinks[event.request_id] = _ignore

    def _send(self, sink: Sink, event: EngineEvent) -> bool:
        """Hand out one event; False if the sink failed, which ends its sequence."""
        try:
            sink(event)
        except Exception:  # noqa: BLE001
            logger.exception("Nobody takes the events of %s any more", event.request_id)
            with self._wake:
                if event.request_id in self._sinks:
                    self._sinks[event.request_id] = _ignore
            self.abort(event.request_id)
            return False
        return True

    def _end(self, error: Callable[[], FlmError]) -> None:
        """Fail everything that is left."""
        try:
            self._engine.drop_all()
        except Exception:  # noqa: BLE001
            logger.exception("The engine's books could not be closed.")
        with self._wake:
            sinks, self._sinks = self._sinks, {}
            self._arrivals.clear()
            self._aborts.clear()
        self._stats = self._engine.stats(alive=False)
        self._engine.unload()
        for request_id, sink in sinks.items():
            self._send(sink, Failed(request_id, error()))
