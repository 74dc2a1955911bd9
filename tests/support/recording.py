"""Recording a step as a CUDA graph does, on any device: what torch computed is computed again."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

READS = ("item", "_local_scalar_dense", "nonzero", "is_nonzero", "equal", "unique", "lift_fresh")
"""What brings numbers back to the host, or constants from it."""


class _Recorder(TorchDispatchMode):
    """Keeps every operation; refuses what cannot be recorded on a CUDA device."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._opname in READS:
            raise RuntimeError(f"cannot record {func}")
        out = func(*args, **(kwargs or {}))
        tensors = [t for t in tree_leaves((args, kwargs, out)) if isinstance(t, Tensor)]
        if len({tensor.device for tensor in tensors}) > 1:
            raise RuntimeError(f"cannot record {func} between devices")
        self.calls.append((func, args, kwargs or {}, out))
        return out


def record(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Run ``step`` and record its operations. What is returned does them again, over the same
    tensors from outside; whatever Python decided meanwhile stays decided.

    Raises:
        RuntimeError: a number is read back, or a tensor of another device takes part.
    """
    with _Recorder() as recorder:
        output = step()

    def replay() -> Tensor:
        now: dict[int, Any] = {}

        def current(value: Any) -> Any:
            return now.get(id(value), value)

        for func, args, kwargs, out in recorder.calls:
            own_args, own_kwargs = tree_map(current, (args, kwargs))
            found = func(*own_args, **own_kwargs)
            pairs = zip(tree_leaves(out), tree_leaves(found), strict=True)
            now |= {id(old): new for old, new in pairs if isinstance(old, torch.Tensor)}
        replayed = now[id(output)]
        assert isinstance(replayed, Tensor)
        return replayed

    return replay
