"""A process of cell_engine.kinds.pool: calls a function after the other, and ends with its worker.

Not in the package of the kinds, which takes half a second of CPU to import, and is needed by few functions.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import pickle
import queue
import resource
import signal
import sys
import threading
import traceback
from typing import BinaryIO

from cell_engine.frames import frame, read_frame, take_streams

_PR_SET_PDEATHSIG = 1
_MIB = 1 << 20


def main() -> None:
    """Serve the worker whose process id is the first argument, with as many MiB of memory as the second says."""
    asked, answered = take_streams()
    _die_with(int(sys.argv[1]))
    _bound_memory(int(sys.argv[2]) * _MIB)
    faulthandler.enable()  # a crash says on the worker's standard error where it was
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(asked, requests), daemon=True).start()
    _send(answered, frame("ready"))
    while True:
        _serve(requests.get(), answered)


def _serve(request: bytes, answered: BinaryIO) -> None:
    """Make one call; says that it begins, once all is imported, and then what it came to: (result, None) or
    (None, what was raised)."""
    try:
        function, args = pickle.loads(request)  # noqa: S301 (our own worker)
    except BaseException as error:  # noqa: BLE001 - importing runs the function's module, which may do anything
        outcome = frame((None, _words(error)))
        _send(answered, frame("begins"))
    else:
        _send(answered, frame("begins"))
        try:
            outcome = frame((function(*args), None))
        except BaseException as error:  # noqa: BLE001 - sys.exit() in a function is that call's error, too
            outcome = frame((None, _words(error)))
    _send(answered, outcome)


def _words(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


def _send(stream: BinaryIO, content: bytes) -> None:
    stream.write(content)
    stream.flush()


def _read(asked: BinaryIO, requests: queue.SimpleQueue[bytes]) -> None:
    """Read ahead, so as to notice the pipe's end during a call: nobody waits for an answer any more."""
    try:
        while True:
            requests.put(read_frame(asked))
    except EOFError:
        os.killpg(0, signal.SIGKILL)  # the group is this process and what its function started


def _die_with(worker: int) -> None:
    """Where the kernel can do it: a function that never lets Python's other threads run would notice no pipe's end."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker:  # it had ended before that
        os.killpg(0, signal.SIGKILL)


def _bound_memory(most: int) -> None:
    # Not RLIMIT_AS: address space that allocators and thread pools only reserve would count. macOS heeds neither.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


if __name__ == "__main__":
    main()
