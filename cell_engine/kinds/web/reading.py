"""The text of a page, read in processes of their own: its bytes come from anybody.

What makes a parser slow, hungry or fall over ends one of these processes, which is replaced, and never the worker. They
read one page after the other, for starting one takes a second and a half. What they answer is JSON: a parser that was
led astray could write anything, and unpickling that would run it here.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
from dataclasses import dataclass

from cell_engine.kinds.web.failing import FetchError

PROCESSES = 2
READING_SECONDS = 20.0
STARTING_SECONDS = 60.0
MEMORY_BYTES = 2 * 2**30

_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR")
_TRIES = 2  # what ended the first process may have been somebody else's appetite for memory

LENGTH = struct.Struct("!Q")


@dataclass(frozen=True)
class Text:
    """What a page says: its main text, the title it has, the charset it was read as."""

    text: str
    title: str | None
    charset: str


class Readers:
    """At most ``most`` processes; further pages wait for one."""

    def __init__(self, most: int = PROCESSES, seconds: float = READING_SECONDS) -> None:
        self._places = asyncio.Semaphore(most)
        self._seconds = seconds
        self._idle: list[asyncio.subprocess.Process] = []
        self._closed = False

    async def read(self, body: bytes, media_type: str, charset: str | None) -> Text:
        """Raises FetchError if ``body`` holds no text, or none that can be read within ``seconds``."""
        async with self._places:
            for _ in range(_TRIES):
                answer = await self._asked(body, media_type, charset)
                if answer is not None:
                    break
            else:
                raise FetchError(
                    "bad_input", f"Reading the text of the page's {len(body):,} bytes ended the process that did it."
                )
        if "refused" in answer:
            raise FetchError("bad_input", str(answer["refused"]))
        return Text(str(answer["text"]), answer["title"] and str(answer["title"]), str(answer["charset"]))

    async def _asked(self, body: bytes, media_type: str, charset: str | None) -> dict[str, str | None] | None:
        """The answer of a process; None if it died of the question."""
        process = self._idle.pop() if self._idle else await _start()
        if process.returncode is not None:  # it died of itself meanwhile
            process = await _start()
        answer = None
        try:
            async with asyncio.timeout(self._seconds):
                answer = await _ask(process, body, media_type, charset)
        except TimeoutError:
            raise FetchError(
                "bad_input", f"No text could be read of the page's {len(body):,} bytes within {self._seconds:g} s."
            ) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        finally:
            if answer is None or self._closed:
                await _end(process)
            else:
                self._idle.append(process)
        return answer

    async def close(self) -> None:
        """End the processes; the instance is of no use afterwards."""
        self._closed = True
        while self._idle:
            await _end(self._idle.pop())


def _environment() -> dict[str, str]:
    """What it takes to run, and none of the worker's keys."""
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


async def _start() -> asyncio.subprocess.Process:
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cell_engine.kinds.web.reader", str(MEMORY_BYTES),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,  # Ctrl-C is for the worker
        )  # fmt: skip
    except OSError as error:  # no memory or no process to be had: not the page's fault
        raise FetchError("transient", f"No process could be started to read the page: {error.strerror}") from None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(STARTING_SECONDS):
            await process.stdout.readexactly(1)
    except (TimeoutError, asyncio.IncompleteReadError):
        await _end(process)
        raise FetchError("transient", "The process that reads pages did not start.") from None
    except BaseException:
        await _end(process)
        raise
    return process


async def _ask(
    process: asyncio.subprocess.Process, body: bytes, media_type: str, charset: str | None
) -> dict[str, str | None]:
    assert process.stdin is not None
    assert process.stdout is not None
    head = json.dumps({"media_type": media_type, "charset": charset, "seconds": READING_SECONDS}).encode()
    process.stdin.writelines([LENGTH.pack(len(head)), head, LENGTH.pack(len(body)), body])
    await process.stdin.drain()
    length = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))[0]
    content = await process.stdout.readexactly(min(length, MEMORY_BYTES))
    try:
        answer: dict[str, str | None] = json.loads(content)
    except ValueError:
        raise ConnectionError from None
    return answer


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    await asyncio.shield(process.wait())
