"""What a worker and its own processes say to each other: pickled values with their length ahead, over two pipes.

Pickle is no boundary: such a process runs as the same user, with the same rights as its worker.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:  # it takes longer to import than all else that a process needs
    import asyncio

_LENGTH = struct.Struct("!Q")


def frame(value: object) -> bytes:
    content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(content)) + content


def read_frame(stream: BinaryIO) -> bytes:
    """The next frame's content, still pickled. Raises EOFError where the other end is closed."""
    head = stream.read(_LENGTH.size)
    content = stream.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else b""
    if not content:
        raise EOFError
    return content


async def receive(stream: asyncio.StreamReader) -> Any:
    """The next value. Raises asyncio.IncompleteReadError where the other end is closed, and what unpickling raises."""
    length = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))[0]
    return pickle.loads(await stream.readexactly(length))  # noqa: S301 (our own process)


def take_streams() -> tuple[BinaryIO, BinaryIO]:
    """In the process: standard input and output, and others in their place: what a function reads or prints itself is
    not for the worker."""
    asked, answered = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return asked, answered


def told(code: int) -> str:
    """An exit code in words."""
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
