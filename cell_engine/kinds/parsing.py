"""The process that reads for `Parsers`: one thing after the other, until its standard input ends.

``python -m cell_engine.kinds.parsing MODULE BYTES``: MODULE has ``read(head, body) -> answer``, BYTES bound its memory.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import struct
import sys
from contextlib import suppress
from typing import BinaryIO

LENGTH = struct.Struct("!Q")
_GRACE_SECONDS = 10


def _frame(stream: BinaryIO) -> bytes:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        os._exit(0)  # nobody asks any more
    return stream.read(LENGTH.unpack(head)[0])


def main() -> None:
    """Serve: a head in JSON and a body in, an answer in JSON out, each with its length in front."""
    asked, answered = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    read = importlib.import_module(sys.argv[1]).read
    memory = int(sys.argv[2])
    # It answers through a pipe: no file of its own, and no core of what it has read.
    for limit, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # not every system keeps to it
            resource.setrlimit(limit, (most, most))
    answered.write(b"!")
    answered.flush()
    while True:
        head = json.loads(_frame(asked))
        body = _frame(asked)
        # Whoever asked ends this process when the time is over; should nobody be left to do so, the system does.
        signal.alarm(int(head["seconds"]) + _GRACE_SECONDS)
        try:
            answer = read(head["head"], body)
        except (Exception, MemoryError) as error:  # noqa: BLE001 - whatever it does to a parser is its own error
            answer = {"refused": f"It cannot be read: {type(error).__name__}"}
        signal.alarm(0)
        content = json.dumps(answer).encode()
        answered.write(LENGTH.pack(len(content)) + content)
        answered.flush()


if __name__ == "__main__":
    main()
