"""What the tests of the embedded server share. Looks at processes by itself, not through the code under test."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg

from cell_engine.embedded import Server

PROJECT = Path(__file__).resolve().parents[2]


def processes_in(folder: Path) -> list[psutil.Process]:
    """PostgreSQL processes working anywhere below the folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.name() == "postgres" and Path(process.cwd()).is_relative_to(folder):
                found.append(process)
        except psutil.Error:
            continue
    return found


def alive(process: psutil.Process) -> bool:
    """Whether it runs; a zombie that nobody has reaped yet does not, and in some containers nobody ever does."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def postmasters_in(folder: Path) -> list[int]:
    """The pids of whole servers below the folder."""

    def is_first(process: psutil.Process) -> bool:
        try:
            return "-D" in process.cmdline()
        except psutil.Error:
            return False

    return [process.pid for process in processes_in(folder) if is_first(process)]


def postmaster_pid(server: Server) -> int:
    return int((server.data_dir / "postmaster.pid").read_text().splitlines()[0])


def kill_server(server: Server) -> None:
    """With -9; its processes follow it by themselves."""
    process = psutil.Process(postmaster_pid(server))
    process.kill()
    wait_until(lambda: not alive(process))


def query(server: Server, statement: str, dbname: str = "postgres") -> list[tuple[object, ...]]:
    with psycopg.connect(server.dsn(dbname), autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def start_python(code: str, *arguments: str | Path, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Another Python process with the project importable; `before` is put in front of its command."""
    command = [*before, sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_until(condition: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)
