"""Memory that loading a model needed for a while."""

import ctypes
import gc
import sys


def give_memory_back() -> None:
    """Let the system have what was freed: the C library keeps it otherwise."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's own
        if trim is not None:
            trim(0)
