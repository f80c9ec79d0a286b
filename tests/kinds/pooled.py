"""What the tests let a pool's processes do."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import time
from pathlib import Path


def pid(*_: object) -> int:
    return os.getpid()


def double(number: int) -> int:
    return 2 * number


def fails(text: str) -> str:
    raise ValueError(f"no number in {text!r}")


def leaves(code: int) -> None:
    sys.exit(code)


def segfaults() -> None:
    ctypes.string_at(0)


def ends(code: int) -> None:
    os._exit(code)


def ends_once(folder: str) -> str:
    first = Path(folder, "first")
    if first.exists():
        return "the second time"
    first.touch()
    os._exit(9)


def sleeps(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def never_yields(path: str) -> None:
    """Tells its process id, then keeps Python's other threads from running for years."""
    write_pid(path)
    re.match(r"(a+)+$", "a" * 60 + "b")


def write_pid(path: str) -> None:
    partial = Path(path + ".part")
    partial.write_text(str(os.getpid()))
    partial.rename(path)


def starts_another(path: str) -> None:
    subprocess.run(
        [sys.executable, "-c", f"from tests.kinds import pooled; pooled.write_pid({path!r}); pooled.sleeps(60)"]
    )


def takes(mebibytes: int) -> int:
    return len(bytearray(mebibytes << 20))


def nothing_to_send() -> object:
    return lambda: None


class Unknown:
    def __reduce__(self) -> tuple[object, ...]:
        return double, ("no", "such", "arguments")


def unreadable() -> object:
    return Unknown()


def prints() -> str:
    print("a word on standard output")
    os.write(1, b"and bytes")
    return sys.stdin.read()
