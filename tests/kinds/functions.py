"""Functions that the tests' columns call."""

from __future__ import annotations

import asyncio
import contextvars
import os
import re
import sys
import threading
import time
from os import getenv  # noqa: F401 (what a module has imported is not its own)
from typing import Any

unblock = threading.Event()
not_a_function = 1
seen: list[Any] = []


def length(a: str) -> int:
    return len(a)


async def length_later(a: str) -> int:
    await asyncio.sleep(0)
    return len(a)


class Lengths:
    @staticmethod
    def static(a: str) -> int:
        return len(a)


class _Callable:
    async def __call__(self, a: str) -> int:
        return len(a)


callable_object = _Callable()


def both(a: str, b: str | None) -> str:
    return f"{a}+{b}"


def with_key(a: str, idempotency_key: str) -> str:
    return f"{a}/{idempotency_key}"


def thread_name(a: str) -> str:
    return threading.current_thread().name


def returns_text(a: str) -> str:
    return a


def returns_nothing(a: str) -> None:
    return None


def mutates(a: list[int]) -> int:
    a.append(0)
    return len(a)


def fails(a: str) -> int:
    raise ValueError(f"no number in {a!r}")  # line is looked up by the test


def fails_below(a: str) -> int:
    return int(contextvars.ContextVar[int]("unset").get()) + _parse(a)


def _parse(a: str) -> int:
    return int(a)


async def fails_later(a: str) -> int:
    await asyncio.sleep(0)
    return _parse(a)


def times_out_by_itself(a: str) -> int:
    raise TimeoutError("the socket timed out")


def exits(a: str) -> int:
    sys.exit("I quit")


def stops_iteration(a: str) -> int:
    return next(iter(()))


async def awaits_something_canceled(a: str) -> int:
    task = asyncio.create_task(asyncio.sleep(10))
    task.cancel()
    await task
    return 1


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def fails_without_words(a: str) -> int:
    raise Unprintable


def leaks(a: str) -> int:
    raise ValueError(f"cannot log in with api_key=sk-{a} " + "x" * 1000)


def blocks(a: str) -> int:
    unblock.wait(60)
    return len(a)


async def blocks_later(a: str) -> int:
    await asyncio.sleep(60)
    return len(a)


def sleeps(a: float) -> float:
    time.sleep(a)
    return a


def talks(a: str) -> str:
    print("a word on standard output")
    os.write(1, b"and bytes")
    return f"{a} and {sys.stdin.read()!r}"


def place(a: str, idempotency_key: str) -> str:
    return f"{os.getpid() == int(a)} {idempotency_key}"


async def place_later(a: str) -> str:
    await asyncio.sleep(0)
    return str(os.getpid() == int(a))


def busy(a: str) -> int:
    """Never lets another thread run, for years."""
    return len(re.findall(r"(a+)+$", "a" * 60 + "b"))


def leaves(a: str) -> str:
    os._exit(3)
