"""Run by the Python that has xllamacpp: llama.cpp's server on a free port, until standard input ends.

Usage: llama_server.py WEIGHTS WINDOW. Its first line of output is the address.
"""

import sys

import xllamacpp


def main(weights: str, window: str) -> None:
    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.model_alias = {"smollm2"}
    params.n_ctx = int(window)
    params.n_parallel = 1
    # Several threads wait for each other in loops, which takes ages where other programs want the cores, too.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.sampling.seed = 1
    params.warmup = False
    params.port = 0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
