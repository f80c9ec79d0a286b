"""Parsers in processes of their own: what they read comes from anybody.

What makes a parser slow, hungry or fall over ends one of these processes, which is replaced, and never the worker. They
read one thing after the other, for starting one takes a second and a half. What they answer is JSON: a parser that was
led astray could write anything, and unpickling that would run it here.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from cell_engine.kinds.base import ErrorClass, Failure
from cell_engine.kinds.parsing import LENGTH
from cell_engine.specs.text import Json

PROCESSES = 2
STARTING_SECONDS = 60.0
MEMORY_BYTES = 2 * 2**30

_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR")
_TRIES = 2  # what ended the first process may have been somebody else's appetite for memory


class ParsingError(Exception):
    """There is no answer; ``failure`` is that of the call which asked."""

    def __init__(self, error_class: ErrorClass, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(error_class, message)


class Parsers:
    """At most ``most`` processes, each of which runs the ``read`` of ``module``; what comes beyond waits for one.

    ``what`` is what messages call that which is read.
    """

    def __init__(self, module: str, what: str, most: int = PROCESSES) -> None:
        self._module = module
        self._what = what
        self._places = asyncio.Semaphore(most)
        self._idle: list[asyncio.subprocess.Process] = []
        self._closed = False

    async def ask(self, head: Mapping[str, Json], body: bytes, seconds: float) -> dict[str, Any]:
        """What ``read(head, body)`` answers in one of the processes.

        ``seconds`` bound the reading, not the wait for a process. Raises ParsingError: ``bad_input`` where reading
        takes longer, or ends its process twice; ``transient`` where none can be started.
        """
        async with self._places:
            for _ in range(_TRIES):
                answer = await self._asked(head, body, seconds)
                if answer is not None:
                    return answer
        raise ParsingError(
            "bad_input", f"Reading the text of the {self._what}'s {len(body):,} bytes ended the process that did it."
        )

    async def _asked(self, head: Mapping[str, Json], body: bytes, seconds: float) -> dict[str, Any] | None:
        """The answer of a process; None if it died of the question."""
        process = self._idle.pop() if self._idle else await self._start()
        if process.returncode is not None:  # it died of itself meanwhile
            process = await self._start()
        answer = None
        try:
            async with asyncio.timeout(seconds):
                answer = await _ask(process, head, body, seconds)
        except TimeoutError:
            raise ParsingError(
                "bad_input",
                f"No text could be read of the {self._what}'s {len(body):,} bytes within {seconds:g} s.",
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

    async def _start(self) -> asyncio.subprocess.Process:
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "cell_engine.kinds.parsing", self._module, str(MEMORY_BYTES),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for the worker
            )  # fmt: skip
        except OSError as error:  # no memory or no process to be had: not its fault
            raise ParsingError(
                "transient", f"No process could be started to read the {self._what}: {error.strerror}"
            ) from None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(STARTING_SECONDS):
                await process.stdout.readexactly(1)
        except (TimeoutError, asyncio.IncompleteReadError):
            await _end(process)
            raise ParsingError("transient", f"The process that reads each {self._what} did not start.") from None
        except BaseException:
            await _end(process)
            raise
        return process


def _environment() -> dict[str, str]:
    """What it takes to run, and none of the worker's keys."""
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


async def _ask(
    process: asyncio.subprocess.Process, head: Mapping[str, Json], body: bytes, seconds: float
) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    head_bytes = json.dumps({"head": head, "seconds": seconds}).encode()
    process.stdin.writelines([LENGTH.pack(len(head_bytes)), head_bytes, LENGTH.pack(len(body)), body])
    await process.stdin.drain()
    length = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))[0]
    content = await process.stdout.readexactly(min(length, MEMORY_BYTES))
    try:
        answer: dict[str, Any] = json.loads(content)
    except ValueError:
        raise ConnectionError from None
    return answer


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    await asyncio.shield(process.wait())
