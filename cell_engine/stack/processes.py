"""Processes known by more than their pid, which the system gives out again, and the sessions they lead."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

_POLL = 0.02


@dataclass(frozen=True)
class Mark:
    """One process for all time: its pid, and when it started in a form that only it has."""

    pid: int
    started: str


def mark(pid: int) -> Mark | None:
    """The process that has this pid now; None if there is none (or only its unreaped remains)."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return Mark(pid, _started(process))
    except psutil.NoSuchProcess:
        return None


def alive(one: Mark) -> bool:
    return mark(one.pid) == one


def members(leader: Mark) -> list[psutil.Process]:
    """The living processes of the session that `leader` leads or, if it is dead, once led."""
    now = mark(leader.pid)
    if now is not None and now != leader:
        return []  # its pid is a stranger's by now: a session that lives keeps its leader's pid from being reused
    found = []
    for pid in psutil.pids():
        if _session(pid) == leader.pid:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return found


def send(processes: Iterable[psutil.Process], how: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(how)


def kill_session(leader: Mark, patience: float = 5.0) -> bool:
    """Kill what is left of a session; returns whether there was anything. Loops, since a dying process may fork."""
    deadline = time.monotonic() + patience
    found = False
    while (left := members(leader)) and time.monotonic() < deadline:
        found = True
        send(left, signal.SIGKILL)
        time.sleep(_POLL)
    return found


def _started(process: psutil.Process) -> str:
    if sys.platform == "linux":
        # Ticks since boot: unlike the wall clock, which psutil converts to, they do not move when the clock is set.
        with suppress(OSError):
            stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8", errors="replace")
            return f"{stat.rpartition(')')[2].split()[19]} {_boot()}"
        raise psutil.NoSuchProcess(process.pid)
    return str(process.create_time())


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None
