"""How fast this machine reads memory: the bound on decoding, which reads all weights a token."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

NUM_READS = 15


def read_bandwidth(num_threads: int, num_bytes: int) -> float:
    """Bytes a second that ``num_threads`` threads read together at best, of a block of
    ``num_bytes``. Caches hold more of a small block, so it should be as large as the weights."""
    # Zeros would be one page of the system's, read from a cache.
    block = np.ones(num_bytes // 8, dtype=np.int64)
    parts = np.array_split(block, num_threads)
    times = []
    with ThreadPoolExecutor(num_threads) as pool:
        for _ in range(NUM_READS):
            began = time.perf_counter()
            # numpy lets go of the interpreter meanwhile.
            list(pool.map(np.bitwise_or.reduce, parts))
            times.append(time.perf_counter() - began)
    return block.nbytes / min(times)
