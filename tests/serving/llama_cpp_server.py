"""llama.cpp's own HTTP server, out of the package `xllamacpp`: run with a GGUF file and a port.

A program and no module of ours: it is what a user of that server would start.
"""

from __future__ import annotations

import importlib
import signal
import sys


def main(weights: str, port: str) -> None:
    """Serve until killed."""
    xllamacpp = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.port = int(port)
    params.n_ctx = 2048
    # One conversation at a time: others are kept in llama.cpp's own cache in memory only.
    params.n_parallel = 1
    # Its threads wait for each other busily, which is slow where they do not all have a core.
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
