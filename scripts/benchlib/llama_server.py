"""A process that runs llama.cpp's server: ``llama_server.py GGUF THREADS SLOTS PORT``."""

import signal
import sys

import xllamacpp

CTX_LEN_PER_SLOT = 4096


def main(gguf: str, threads: int, num_slots: int, port: int) -> None:
    """Serve ``gguf`` on 127.0.0.1 until a signal ends the process."""
    params = xllamacpp.CommonParams()
    params.model.path = gguf
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = num_slots
    params.n_ctx = CTX_LEN_PER_SLOT * num_slots
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
