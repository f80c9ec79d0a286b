"""The function that columns call in a kill round, and the log of its calls: what was paid for, whoever died since."""

import asyncio
import json
import os
import random
import sys
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from cell_engine.kinds import apart

LOG = "AUTOFILL_TEST_CALLS"
"""The variable that names the log's file, for the workers."""

_numbers = count(1)


@dataclass
class Call:
    """A call that was made; `ended` is infinite for one that never came back. Times are seconds of the epoch.

    `key` names what it was asked: row, column, fingerprint of what it read, and force. `answer` is like no other's, as
    a model's would be: a cell that has it was filled by this call.
    """

    pid: int
    key: str
    inputs: dict[str, str]
    answer: str
    started: float
    ended: float = float("inf")

    @property
    def cell(self) -> tuple[int, int]:
        """Row and column."""
        _, row, column, _, _ = self.key.split(":")
        return int(row), int(column)


async def call(idempotency_key: str, **inputs: str) -> str:
    answer = made(idempotency_key, inputs)
    await asyncio.sleep(random.expovariate(6))
    finished(answer)
    return answer


def made(idempotency_key: str, inputs: dict[str, str]) -> str:
    """Log a call that begins; comes to its answer."""
    answer = f"{os.getpid()}.{next(_numbers)}"
    _write({"pid": _worker(), "key": idempotency_key, "inputs": inputs, "answer": answer, "started": time.time()})
    return answer


def finished(answer: str) -> None:
    _write({"answer": answer, "ended": time.time()})


def _worker() -> int:
    """The worker's process: the parent of one that makes a suspect's call apart, and ends with it."""
    main = sys.modules["__main__"].__spec__
    return os.getppid() if main is not None and main.name == apart.__name__ else os.getpid()


def read_calls(log: Path) -> dict[str, Call]:
    """Every call of the log by its answer."""
    calls: dict[str, Call] = {}
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        if "ended" in entry:
            calls[entry["answer"]].ended = entry["ended"]
        else:
            calls[entry["answer"]] = Call(**entry)
    return calls


def _write(entry: dict[str, object]) -> None:
    # One write, at the end of the file: whole, also beside another process's and when this one is killed.
    file = os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, (json.dumps(entry) + "\n").encode())
    finally:
        os.close(file)
