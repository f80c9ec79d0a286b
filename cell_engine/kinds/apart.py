"""A call in a process of its own: for cells that were in flight when workers died, one of which may be the killer.

Which of a worker's calls ended it cannot be told from outside. Alone in a process it can: what dies there died of its
own call, and takes neither its worker nor a neighbour along. So this, and never the death of a worker, is what sets a
cell aside.

A process serves one call and is never used again: what an earlier call left behind, a thread or memory, could kill it
under a later one.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import threading
from typing import BinaryIO

from cell_engine.frames import frame, read_frame, receive, take_streams, told
from cell_engine.kinds.base import Call, Failure, Outcome
from cell_engine.kinds.registry import make_kinds

PLACES = 2
"""Processes side by side, at most: each loads what its function imports once more."""

DEATHS = 3
"""A call that has ended its process so often is set aside."""

STARTING_SECONDS = 30.0
"""For the process to start and to import; beyond that and the call's deadline it is killed."""

PAUSE_SECONDS = 1.0
"""Between two tries: what killed the first may have been somebody else's appetite for memory."""


class Apart:
    """The places of one worker. `free` are those not taken; `start` takes one."""

    def __init__(self) -> None:
        self.free = PLACES

    def start(self, call: Call) -> asyncio.Task[Outcome]:
        """Compute `call` apart; its place is given back when the task ends, canceled or not."""
        self.free -= 1
        task = asyncio.create_task(_compute(call))
        task.add_done_callback(self._ended)
        return task

    def _ended(self, _: asyncio.Task[Outcome]) -> None:
        self.free += 1


async def _compute(call: Call) -> Outcome:
    deaths: list[str] = []
    while True:
        outcome = await _in_process(call)
        if not isinstance(outcome, int):
            return outcome
        deaths.append(told(outcome))
        if len(deaths) == DEATHS:
            return Failure(
                "crashed",
                f"Computing this cell ended its process, with nothing else in it, {DEATHS} times of {DEATHS} "
                f"({', '.join(deaths)}). It is set aside; `autofill retry --class crashed` tries it again.",
            )
        await asyncio.sleep(PAUSE_SECONDS)


async def _in_process(call: Call) -> Outcome | int:
    """The outcome, or the exit code of a process that ended without one."""
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C is for the worker, and no death of the call's
        )  # fmt: skip
    except OSError as error:  # no memory or no process to be had: not the call's fault
        return Failure("transient", f"No process could be started for it: {error.strerror}")
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(call.deadline + STARTING_SECONDS):
            process.stdin.write(frame(call))
            # It stays open: its end tells the process that nobody waits for an answer any more.
            outcome: Outcome = await receive(process.stdout)
            return outcome
    except TimeoutError:
        return Failure(
            "transient", f"No answer within {call.deadline:g} s. Raise the column's timeout if it needs longer."
        )
    except (asyncio.IncompleteReadError, ConnectionError):
        return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.shield(process.wait())


# ---- in the process


def _serve(asked: BinaryIO, answered: BinaryIO) -> None:
    call: Call = pickle.loads(read_frame(asked))  # noqa: S301 (our own worker)
    threading.Thread(target=_end_with, args=(asked,), daemon=True).start()
    answered.write(frame(asyncio.run(_answer(call))))
    answered.flush()


async def _answer(call: Call) -> Outcome:
    kind = make_kinds([call.column.job_type])[call.column.job_type]
    return await kind.compute(call)


def _end_with(asked: BinaryIO) -> None:
    asked.read(1)
    os._exit(1)


def main() -> None:
    """Read one call from standard input, write its outcome to standard output, and end."""
    _serve(*take_streams())
    os._exit(0)  # without waiting for what the call has left running


if __name__ == "__main__":
    main()
