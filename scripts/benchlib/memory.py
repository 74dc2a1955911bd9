"""Peak memory of a process and its children."""

import threading
from types import TracebackType

import psutil

INTERVAL_S = 0.1
MIB = 1 << 20


def tree_rss(pid: int) -> int:
    """Resident bytes of a process and its descendants now; 0 when it is gone."""
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0
    total = 0
    for process in family:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total


def listener_pid(port: int) -> int | None:
    """The process that listens on a local TCP port, or None when the system does not tell."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.Error:
        return None
    for connection in connections:
        address = connection.laddr
        is_ours = connection.status == psutil.CONN_LISTEN and address and address.port == port
        if is_ours and connection.pid is not None:
            return int(connection.pid)
    return None


class PeakMemory:
    """Watches a process tree from enter to exit; ``peak_mib`` is what it saw at most."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def peak_mib(self) -> float:
        """The peak so far in MiB."""
        return self._peak / MIB

    def __enter__(self) -> "PeakMemory":
        """Start watching."""
        self._sample()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Look a last time and stop."""
        self._end.set()
        self._thread.join()
        self._sample()

    def _watch(self) -> None:
        while not self._end.wait(INTERVAL_S):
            self._sample()

    def _sample(self) -> None:
        self._peak = max(self._peak, tree_rss(self._pid))
