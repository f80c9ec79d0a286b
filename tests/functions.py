"""Functions that test collections compute with."""

import asyncio
import os
import random
import signal
import threading
import time
from pathlib import Path


def upper(a: str) -> str:
    return a.upper()


def lower(a: str) -> str:
    return a.lower()


def upper_b(b: str) -> str:
    return b.upper()


def upper_begins(begins: str | None) -> str:
    return str(begins).upper()


def length(a: str) -> int:
    return len(a)


def boom(a: str) -> str:
    raise ValueError(f"cannot do {a!r}")


async def slow(a: str) -> str:
    await asyncio.sleep(float(os.environ.get("TEST_SLOW_SECONDS", "0.3")))
    return a


def wait(a: str) -> str:
    time.sleep(0.05)
    return a


HOLD = threading.Event()
"""While it is not set, calls of `held` stay in flight. For workers that run in the test's own process."""


async def held(a: str) -> str:
    while not HOLD.is_set():  # noqa: ASYNC110 (set by another thread)
        await asyncio.sleep(0.01)
    return a


KEYS: list[str] = []


async def keyed(a: str, idempotency_key: str) -> str:
    """Notes its key at each call, then is `held`."""
    KEYS.append(idempotency_key)
    return await held(a)


def upper_n(n: str) -> str:
    return n.upper()


def _shape(definition: int, inputs: dict[str, object]) -> str:
    return f"{definition}({','.join(f'{name}={value}' for name, value in sorted(inputs.items()))})"


async def shape_1(**inputs: object) -> str:
    """What columns of `sheet` compute, some after others: an answer that follows from the definition and the inputs."""
    await asyncio.sleep(random.random() * 0.02)
    return _shape(1, inputs)


async def shape_2(**inputs: object) -> str:
    await asyncio.sleep(random.random() * 0.02)
    return _shape(2, inputs)


def deadly(a: str) -> str:
    """Ends its process where `a` is "poison", until the file TEST_ANTIDOTE exists; others are there when it does."""
    time.sleep(0.3)
    if a == "poison" and not Path(os.environ["TEST_ANTIDOTE"]).exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return a
