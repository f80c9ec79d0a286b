"""Threads for functions that block. They are daemons: a function that never returns cannot keep a worker from ending,
as the threads of concurrent.futures would, which are joined when the interpreter exits."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

Settled: TypeAlias = tuple[Any, BaseException | None]
"""(result, None), or (None, what was raised)."""


@dataclass(eq=False)
class Job:
    """One piece of work; ``started`` is set by its thread."""

    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[Settled]
    started: bool = False


class DaemonThreads:
    """A pool that grows to ``most`` threads; further jobs wait for one that ends."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._count = 0

    def submit(self, work: Callable[[], Any]) -> Job:
        """Run ``work`` in a thread. Called from the event loop only; a job that was canceled first never starts."""
        loop = asyncio.get_running_loop()
        job = Job(work, loop, loop.create_future())
        self._jobs.put(job)
        if not self._idle.acquire(blocking=False) and self._count < self.most:
            self._count += 1
            threading.Thread(target=self._serve, name=f"function-{self._count}", daemon=True).start()
        return job

    def close(self) -> None:
        """Let the threads end once they are idle; nothing waits for them."""
        for _ in range(self._count):
            self._jobs.put(None)

    def _serve(self) -> None:
        while (job := self._next()) is not None:
            if not job.done.cancelled():
                job.started = True
                _run(job)
            del job  # its inputs and its result must not live until the next job comes

    def _next(self) -> Job | None:
        try:
            return self._jobs.get_nowait()
        except queue.Empty:
            self._idle.release()
            return self._jobs.get()


def _run(job: Job) -> None:
    settled: Settled
    try:
        settled = (job.work(), None)
    except BaseException as error:  # noqa: BLE001 - sys.exit() in a function is that cell's error, too
        settled = (None, error)
    try:
        job.loop.call_soon_threadsafe(_settle, job.done, settled)
    except RuntimeError:
        return  # the loop has closed: nobody is left to be told


def _settle(done: asyncio.Future[Settled], settled: Settled) -> None:
    if not done.done():
        done.set_result(settled)
