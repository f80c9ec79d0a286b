"""Processes for CPU work: a call that hangs, crashes or eats memory ends alone, in a process that can be killed.

    pool = ProcessPool()
    text = await pool.run(extract_text, data, timeout=30)    # a function of a module, by its name
    await pool.close()

Processes start when there is work for them, each a fresh interpreter (a fork of a process with threads would inherit
their locks), and serve call after call. Nothing outlives the worker, however it ends: the kernel is told to kill them
with it, and where it cannot be told they watch their pipe.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, cast

from cell_engine.errors import AutofillError
from cell_engine.frames import frame, receive, told
from cell_engine.kinds.base import ErrorClass, Failure
from cell_engine.settings import get_settings

DEATHS = 3
"""A call that has ended its process so often is `crashed`."""

PAUSE_SECONDS = 1.0
"""Between two tries: what killed the first may have been somebody else's appetite for memory."""

STARTING_SECONDS = 60.0
"""For a process to start, and for what a call imports, on a busy machine; no call's time."""

CALLS = 500
"""A process ends after so many: what libraries leak does not add up."""

_BUFFER = 1 << 20
_Result = TypeVar("_Result")


class PoolError(AutofillError):
    """No result: the call took too long or no process could be started (``transient``), it ended its process time and
    again (``crashed``), or the function raised (``function_error``; the words are the exception's)."""

    def __init__(self, error_class: ErrorClass, message: str) -> None:
        self.error_class = error_class
        super().__init__(message)

    @property
    def failure(self) -> Failure:
        return Failure(self.error_class, str(self))


class ProcessPool:
    """At most `most` processes (AUTOFILL_PROCESSES, by default one per CPU) of at most `memory` MiB each
    (AUTOFILL_PROCESS_MEMORY). Belongs to the event loop that first uses it."""

    def __init__(self, *, most: int | None = None, memory: int | None = None, calls: int = CALLS) -> None:
        settings = get_settings()
        self.most = most or settings.processes or usable_cpus()
        self._memory = memory or settings.process_memory
        self._calls = calls
        self._places = asyncio.Semaphore(self.most)
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()
        self._closed = False

    async def run(self, function: Callable[..., _Result], *args: object, timeout: float) -> _Result:  # noqa: ASYNC109
        """What `function`, importable by its module and name, returns for `args`; all of it is pickled on its way.

        `timeout`, in seconds, covers its tries; not the wait for a free process, which is first come, first served, nor
        importing what it needs. Then, and when the caller is canceled, its process is killed. Raises PoolError.
        """
        try:
            request = frame((function, args))
        except Exception as error:
            raise PoolError("function_error", f"Its inputs cannot be sent to a process: {error}") from error
        deaths: list[str] = []
        left = timeout
        while not self._closed:
            async with self._places:
                process = await self._take()
                self._busy.add(process)
                began = None
                try:
                    async with asyncio.timeout(STARTING_SECONDS):
                        outcome: tuple[object, str | None] | int | None = await process.ask(request)
                    if outcome is None:
                        began = time.monotonic()
                        async with asyncio.timeout(left):
                            outcome = await process.outcome()
                except TimeoutError:
                    what = "it could not import what it needs" if began is None else "no result"
                    seconds = STARTING_SECONDS if began is None else timeout
                    raise PoolError("transient", f"{what} within {seconds:g} s: its process was ended") from None
                finally:
                    await self._give_back(process)
            if not isinstance(outcome, int):
                result, raised = outcome
                if raised is not None:
                    raise PoolError("function_error", raised)
                return cast(_Result, result)
            deaths.append(told(outcome))
            left -= 0 if began is None else time.monotonic() - began
            if len(deaths) == DEATHS or left <= 0:
                raise PoolError("crashed", f"it ended its process, {len(deaths)} times: {', '.join(deaths)}")
            await asyncio.sleep(PAUSE_SECONDS)
        raise PoolError("transient", "this process is stopping")

    async def close(self) -> None:
        """Kill all that is left; calls that still run come to an error."""
        self._closed = True
        processes, self._idle = [*self._idle, *self._busy], []
        for process in processes:
            await process.kill()

    async def _take(self) -> _Process:
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                return process
        try:
            async with asyncio.timeout(STARTING_SECONDS):
                return await _Process.start(self._memory)
        except OSError as error:  # of which TimeoutError is one: no memory or no process to be had
            raise PoolError("transient", f"no process could be started: {error.strerror or 'in time'}") from None

    async def _give_back(self, process: _Process) -> None:
        self._busy.discard(process)
        if process.is_ready and process.calls < self._calls and not self._closed:
            self._idle.append(process)
        else:
            await process.kill()


class _Process:
    """One process, and whether it waits for its next call."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.calls = 0
        self.is_ready = True

    @classmethod
    async def start(cls, memory: int) -> _Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cell_engine.pool_process", str(os.getpid()), str(memory),
            stdin=PIPE, stdout=PIPE, limit=_BUFFER,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C is for the worker; and what the function starts can be killed with it
        )  # fmt: skip
        started = cls(process)
        try:
            assert process.stdout is not None
            await receive(process.stdout)
        except asyncio.IncompleteReadError:
            raise OSError(0, f"it ended at once, with {told(await process.wait())}") from None
        except BaseException:
            await started.kill()
            raise
        return started

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    async def ask(self, request: bytes) -> int | None:
        """None once the call begins, or the exit code of a process that ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.is_ready = False
        self.calls += 1
        try:
            self._process.stdin.write(request)
            await self._process.stdin.drain()
            await receive(self._process.stdout)
        except (asyncio.IncompleteReadError, ConnectionError):
            return await self._process.wait()
        return None

    async def outcome(self) -> tuple[object, str | None] | int:
        """(result, None), (None, what was raised), or the exit code of a process that ended."""
        assert self._process.stdout is not None
        try:
            outcome: tuple[object, str | None] = await receive(self._process.stdout)
        except (asyncio.IncompleteReadError, ConnectionError):
            return await self._process.wait()
        except Exception as error:  # noqa: BLE001 (what is no pickle here, such as a class that this process lacks)
            return None, f"its result cannot be read: {type(error).__name__}: {error}"
        self.is_ready = True
        return outcome

    async def kill(self) -> None:
        """End it and all that it started."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await asyncio.shield(self._process.wait())


def usable_cpus() -> int:
    """The CPUs that this process may use, where the system can say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
