"""Work in processes: whatever a call does to its process, it alone fails, and nothing outlives the worker."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from cell_engine.kinds.pool import PoolError, ProcessPool
from tests.kinds import pooled

pytestmark = pytest.mark.anyio


@pytest.fixture
async def pool() -> AsyncIterator[ProcessPool]:
    pool = ProcessPool(most=1, memory=256)
    yield pool
    await pool.close()


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cell_engine.kinds.pool.PAUSE_SECONDS", 0.0)


async def _error(
    pool: ProcessPool, function: Callable[..., object], *args: object, within: float = 30
) -> tuple[str, str]:
    with pytest.raises(PoolError) as caught:
        await pool.run(function, *args, timeout=within)
    return caught.value.error_class, str(caught.value)


async def _until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not happened():  # noqa: ASYNC110 (in another process)
            await asyncio.sleep(0.01)


async def _pid_in(path: Path) -> int:
    await _until(path.exists)
    return int(path.read_text())  # noqa: ASYNC240


async def _ends(pid: int) -> None:
    await _until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


async def test_a_process_serves_call_after_call_whatever_they_raise_and_return(pool: ProcessPool) -> None:
    first = await pool.run(pooled.pid, timeout=30)
    assert first != os.getpid()
    assert await pool.run(pooled.double, 21, timeout=30) == 42
    assert await _error(pool, pooled.fails, "x") == ("function_error", "ValueError: no number in 'x'")
    assert await _error(pool, pooled.leaves, 7) == ("function_error", "SystemExit: 7")
    assert await pool.run(pooled.prints, timeout=30) == ""
    assert (await _error(pool, pooled.nothing_to_send))[0] == "function_error"
    assert (await _error(pool, lambda: None))[1].startswith("Its inputs cannot be sent to a process: ")
    error_class, message = await _error(pool, pooled.takes, 512)  # of 256 MiB
    assert (error_class, message) == ("function_error", "MemoryError")
    assert await pool.run(pooled.pid, timeout=30) == first
    # What cannot be read ends it: who knows what else is in the pipe.
    assert "its result cannot be read: TypeError" in (await _error(pool, pooled.unreadable))[1]
    assert await pool.run(pooled.pid, timeout=30) != first


async def test_a_call_that_hangs_is_killed_with_all_it_started_and_the_next_one_works(
    pool: ProcessPool, tmp_path: Path
) -> None:
    began = time.monotonic()
    error = await _error(pool, pooled.never_yields, str(tmp_path / "pid"), within=1)
    assert error == ("transient", "no result within 1 s: its process was ended")
    assert time.monotonic() - began < 30
    await _ends(int((tmp_path / "pid").read_text()))
    waiting = asyncio.create_task(pool.run(pooled.starts_another, str(tmp_path / "other"), timeout=60))
    started = await _pid_in(tmp_path / "other")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await _ends(started)
    assert await pool.run(pooled.double, 1, timeout=30) == 2


async def test_a_call_that_ends_its_process_is_crashed_after_three_tries_and_one_that_ended_once_is_not(
    pool: ProcessPool, tmp_path: Path
) -> None:
    segfault = signal.SIGSEGV.name
    error = await _error(pool, pooled.segfaults)
    assert error == ("crashed", f"it ended its process, 3 times: {segfault}, {segfault}, {segfault}")
    assert await pool.run(pooled.ends_once, str(tmp_path), timeout=30) == "the second time"


async def test_the_line_for_a_process_is_no_callers_time(pool: ProcessPool) -> None:
    outcomes = await asyncio.gather(*(pool.run(pooled.sleeps, 0.2, timeout=0.5) for _ in range(4)))
    assert outcomes == [0.2] * 4


async def test_a_process_ends_after_its_calls_and_one_that_died_idle_is_not_used() -> None:
    pool = ProcessPool(most=1, calls=2)
    first, second = [await pool.run(pooled.pid, timeout=30) for _ in range(2)]
    assert first == second
    third = await pool.run(pooled.pid, timeout=30)
    assert third != first
    os.kill(third, signal.SIGKILL)
    await _ends(third)
    assert await pool.run(pooled.pid, timeout=30) != third
    await pool.close()
    assert (await _error(pool, pooled.pid))[0] == "transient"


async def test_close_ends_calls_that_run(tmp_path: Path) -> None:
    pool = ProcessPool(most=1)
    waiting = asyncio.create_task(pool.run(pooled.never_yields, str(tmp_path / "pid"), timeout=60))
    pid = await _pid_in(tmp_path / "pid")
    await pool.close()
    with pytest.raises(PoolError):
        await waiting
    await _ends(pid)


async def test_a_process_that_cannot_be_started_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    assert await _error(ProcessPool(most=1), pooled.pid) == (
        "transient",
        "no process could be started: No such file or directory",
    )


_WORKER = """
import asyncio, sys
from cell_engine.kinds.pool import ProcessPool
from tests.kinds import pooled

async def main():
    pool = ProcessPool(most=2)
    idle = await pool.run(pooled.pid, timeout=30)
    await asyncio.gather(*(pool.run(pooled.never_yields, path, timeout=60) for path in sys.argv[1:]))

asyncio.run(main())
"""


async def test_a_worker_that_is_killed_takes_its_processes_along(tmp_path: Path) -> None:
    paths = [tmp_path / "one", tmp_path / "other"]
    worker = subprocess.Popen([sys.executable, "-c", _WORKER, *map(str, paths)])  # noqa: ASYNC220
    pids = [await _pid_in(path) for path in paths]
    worker.kill()
    worker.wait()
    try:
        for pid in pids:
            await _ends(pid)
    finally:
        for pid in filter(psutil.pid_exists, pids):
            os.kill(pid, signal.SIGKILL)
