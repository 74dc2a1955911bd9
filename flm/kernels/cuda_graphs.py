"""Recording work on a CUDA device, to launch it again as a whole."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import torch
from torch import Tensor, cuda

_WARM_UPS: Final = 2
_ABANDONED: Final[list[cuda.CUDAGraph]] = []
"""Graphs whose recording failed: parts of torch may go on asking them what memory they want."""


class CudaGraphs:
    """Records steps of one thread on one device. All recordings share their memory, so the result
    of one is valid until the next one runs."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._memory = cuda.graph_pool_handle()

    def __call__(self, step: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Run ``step`` a few times and record it; what is returned launches the recording.

        Raises:
            RuntimeError: the step waits for the device, or does what cannot be recorded.
        """
        # Where recording fails, torch leaves its stream the current one.
        with cuda.device(self._device), cuda.stream(cuda.current_stream(self._device)):
            self._warm_up(step)
            graph = cuda.CUDAGraph()
            output = self._record(graph, step)

        def replay() -> Tensor:
            graph.replay()
            return output

        return replay

    def _warm_up(self, step: Callable[[], Tensor]) -> None:
        """Libraries set themselves up at their first use, which cannot be recorded; and what waits
        for the device must be found here, because it would spoil a recording for good."""
        before = cuda.current_stream(self._device)
        self._stream.wait_stream(before)
        with cuda.stream(self._stream):
            for _ in range(_WARM_UPS):
                step()
            with _waiting_is_an_error():
                step()
        before.wait_stream(self._stream)

    def _record(self, graph: cuda.CUDAGraph, step: Callable[[], Tensor]) -> Tensor:
        try:
            # Other threads may use the device meanwhile.
            with cuda.graph(
                graph, pool=self._memory, stream=self._stream, capture_error_mode="thread_local"
            ):
                return step()
        except BaseException:
            self._abandon(graph)
            raise

    def _abandon(self, graph: cuda.CUDAGraph) -> None:
        """End what torch leaves open after a failure: its allocator still takes the recording to
        be under way, and would refuse to give memory back from then on."""
        _ABANDONED.append(graph)
        with suppress(RuntimeError, AttributeError):
            index = cuda.current_device()
            torch._C._cuda_endAllocateToPool(index, self._memory)


@contextmanager
def _waiting_is_an_error() -> Iterator[None]:
    before = cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        # torch says that it does not find all of them.
        warnings.simplefilter("ignore")
        cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        cuda.set_sync_debug_mode(before)
