"""Recording on a device that is not there: what is asked of it, in which order."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from flm.kernels import cuda_graphs
from flm.kernels.cuda_graphs import CudaGraphs

DEVICE = torch.device("cuda", 1)


class Cuda:
    """Stands where ``torch.cuda`` does and keeps what happens. Like torch, it leaves the stream of
    a recording that fails the current one."""

    def __init__(self) -> None:
        self.current = "main"
        self.said: list[str] = []
        self.sync_mode = 0

    def Stream(self, device: Any) -> Any:  # noqa: N802
        assert device == DEVICE
        return type("Side", (str,), {"wait_stream": self._waits})("side")

    def current_stream(self, device: Any) -> Any:
        return type("Current", (str,), {"wait_stream": self._waits})(self.current)

    def _waits(self, other: str) -> None:
        self.said.append(f"wait for {other}")

    @contextmanager
    def stream(self, stream: str) -> Iterator[None]:
        before, self.current = self.current, str(stream)
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        self.said.append(f"on {device}")
        yield

    def graph_pool_handle(self) -> tuple[int, int]:
        return (0, 5)

    def CUDAGraph(self) -> Any:  # noqa: N802
        replays = lambda graph: self.said.append(f"replay on {self.current}")  # noqa: E731
        return type("Graph", (), {"replay": replays})()

    @contextmanager
    def graph(self, graph: Any, *, pool: Any, stream: str, capture_error_mode: str) -> Iterator:
        self.said.append(f"record {pool} {capture_error_mode}")
        self.current = str(stream)
        yield
        self.current = "main"

    def get_sync_debug_mode(self) -> int:
        return self.sync_mode

    def set_sync_debug_mode(self, mode: Any) -> None:
        self.sync_mode = mode

    def current_device(self) -> int:
        return 1

    def step(self, output: Tensor) -> Callable[[], Tensor]:
        def run() -> Tensor:
            self.said.append(f"step on {self.current}, sync {self.sync_mode}")
            return output

        return run


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    made = Cuda()
    monkeypatch.setattr(cuda_graphs, "cuda", made)
    monkeypatch.setattr(cuda_graphs, "_ABANDONED", [])
    return made


def test_a_step_is_warmed_up_aside_then_recorded_then_replayed(cuda: Cuda) -> None:
    output = torch.ones(2)
    replay = CudaGraphs(DEVICE)(cuda.step(output))
    assert cuda.said == [
        "on cuda:1",
        "wait for main",
        "step on side, sync 0",
        "step on side, sync 0",
        "step on side, sync error",
        "wait for side",
        "record (0, 5) thread_local",
        "step on side, sync 0",
    ]
    del cuda.said[:]
    assert replay() is output
    assert replay() is output
    assert cuda.said == ["replay on main"] * 2


def test_a_step_that_waits_for_the_device_is_not_recorded(cuda: Cuda) -> None:
    def step() -> Tensor:
        if cuda.sync_mode == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        return torch.ones(2)

    with pytest.raises(RuntimeError, match="synchronizing"):
        CudaGraphs(DEVICE)(step)
    assert (cuda.current, cuda.sync_mode) == ("main", 0)
    assert not any(said.startswith("record") for said in cuda.said)
    assert not cuda_graphs._ABANDONED


def test_a_recording_that_fails_leaves_nothing_open(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[tuple[Any, ...]] = []

    def end(*place: Any) -> None:
        ended.append(place)
        raise RuntimeError("not currently recording")

    def step() -> Tensor:
        if any(said.startswith("record") for said in cuda.said):
            raise RuntimeError("not permitted when stream is capturing")
        return torch.ones(2)

    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", end, raising=False)
    with pytest.raises(RuntimeError, match="not permitted"):
        CudaGraphs(DEVICE)(step)
    assert ended == [(1, (0, 5))]
    assert cuda.current == "main"
    assert len(cuda_graphs._ABANDONED) == 1
