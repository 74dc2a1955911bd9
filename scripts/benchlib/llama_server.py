"""A process that runs llama.cpp's server from the xllamacpp package, with the arguments of
llama-server that the benchmark gives."""

import argparse
import signal
import sys
from collections.abc import Callable
from typing import Any

import xllamacpp

# What it is called, where xllamacpp keeps it, and how it is read.
SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--model": ("model.path", str),
    "--host": ("hostnames", lambda text: [text]),
    "--port": ("port", int),
    "--parallel": ("n_parallel", int),
    "--ctx-size": ("n_ctx", int),
    "--threads": ("cpuparams.n_threads", int),
    "--threads-batch": ("cpuparams_batch.n_threads", int),
    "--flash-attn": ("flash_attn_type", {"auto": -1, "off": 0, "on": 1}.__getitem__),
}
SWITCHES = {
    "--kv-unified": "kv_unified",
    "--cont-batching": "cont_batching",
    "--cache-prompt": "cache_prompt",
}


def put(params: Any, place: str, value: Any) -> None:
    """Set ``place``, which may be an attribute of an attribute."""
    *way, last = place.split(".")
    for name in way:
        params = getattr(params, name)
    setattr(params, last, value)


def main() -> None:
    """Serve until a signal ends the process."""
    parser = argparse.ArgumentParser()
    for flag, (place, read) in SETTINGS.items():
        parser.add_argument(flag, dest=place, type=read, required=True)
    for flag, place in SWITCHES.items():
        parser.add_argument(flag, dest=place, action="store_true")
    params = xllamacpp.CommonParams()
    for place, value in vars(parser.parse_args()).items():
        put(params, place, value)
    print(f"system_info: xllamacpp {xllamacpp.__version__}: {xllamacpp.get_system_info()}")
    sys.stdout.flush()
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.pause()


if __name__ == "__main__":
    main()
