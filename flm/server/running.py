"""The requests that are under way, by the names under which they can be cancelled."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from anyio import CancelScope

from flm.errors import RequestCancelledError


class Stoppable(Protocol):
    """A generation that can be ended early."""

    def stop(self) -> bool:
        """End what still runs; False when nothing does."""


class Ticket:
    """One request under way. Used from one event loop."""

    def __init__(self) -> None:
        self._is_cancelled = False
        self._waits: CancelScope | None = None
        self._generation: Stoppable | None = None

    def cancel(self) -> bool:
        """End the request wherever it is; False when it has ended already."""
        self._is_cancelled = True
        if self._waits is not None:
            self._waits.cancel()
        return True if self._generation is None else self._generation.stop()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Cut what is awaited here short when the request is cancelled.

        Raises:
            RequestCancelledError: it was.
        """
        with CancelScope() as scope:
            self._waits = scope
            if self._is_cancelled:
                scope.cancel()
            yield
        self._waits = None
        if scope.cancelled_caught:
            raise RequestCancelledError("The request was cancelled while it waited for its model.")

    def started(self, generation: Stoppable) -> None:
        """From now on there is something to end; at once if that was asked for before."""
        self._generation = generation
        if self._is_cancelled:
            generation.stop()


class RunningRequests:
    """All requests under way. Several may have one name; they are cancelled together."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[Ticket]] = {}

    def __len__(self) -> int:
        return len({ticket for tickets in self._by_name.values() for ticket in tickets})

    def __contains__(self, name: str) -> bool:
        """True while a request of that name is under way."""
        return name in self._by_name

    @contextmanager
    def entered(self, *names: str | None) -> Iterator[Ticket]:
        """Be found under ``names`` (None is no name) for as long as this lasts."""
        ticket = Ticket()
        own = {name for name in names if name is not None}
        for name in own:
            self._by_name.setdefault(name, []).append(ticket)
        try:
            yield ticket
        finally:
            for name in own:
                self._leave(name, ticket)

    def _leave(self, name: str, ticket: Ticket) -> None:
        tickets = self._by_name[name]
        tickets.remove(ticket)
        if not tickets:
            del self._by_name[name]

    def cancel(self, name: str) -> bool:
        """End every request of that name; False when none was under way."""
        # Every one of them is to be cancelled, not only those up to the first that was.
        found = [ticket.cancel() for ticket in self._by_name.get(name, ())]
        return any(found)
