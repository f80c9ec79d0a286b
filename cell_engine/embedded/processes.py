"""Who is at work in a data directory. Process ids are reused, so none is believed without a look at the process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from cell_engine.embedded.account import Account, write_as

_PROGRAM_NAMES = ("postgres", "postmaster")


def postmaster(pid_file: Path) -> psutil.Process | None:
    """The live server process that a data directory's pid file names, if it is one of that directory."""
    try:
        process = psutil.Process(int(pid_file.read_text().splitlines()[0]))
        return process if _serves(process, pid_file.parent) else None
    except (OSError, ValueError, IndexError, psutil.Error):
        return None


def says_ready(pid_file: Path) -> bool:
    """Whether the server that wrote the pid file has come up: the last of its lines is a status."""
    try:
        return pid_file.read_text().rstrip().endswith("ready")
    except OSError:
        return False


def orphans(data: Path) -> list[psutil.Process]:
    """Server processes that work in a data directory, such as one whose long query outlives a killed server."""

    def found() -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            try:
                if _serves(process, data):
                    yield process
            except (OSError, psutil.Error):
                continue

    return list(found())


def disown_pid_file(pid_file: Path, account: Account) -> None:
    """Let a server start beside the pid file of a dead one, whose pid some stranger may have by now.

    PostgreSQL refuses to start while that pid is alive, except if it is its own parent's: so put ours there. Deleting
    the file would also do away with its check that no process of the old server uses the shared memory named in it.
    """
    try:
        lines = pid_file.read_text().splitlines()
    except FileNotFoundError:
        return
    if lines:
        write_as(account, pid_file, "\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    else:
        pid_file.unlink()  # killed between creating and writing it


def _serves(process: psutil.Process, data: Path) -> bool:
    if process.name() not in _PROGRAM_NAMES:
        return False
    # Every server process works inside its data directory, whatever path led there when it started. On Linux the link
    # is followed to the directory itself: a path of another container may read the same.
    link = Path(f"/proc/{process.pid}/cwd")
    try:
        folder = link if sys.platform == "linux" else Path(process.cwd())
        deleted = folder.stat().st_nlink == 0 and process.cwd() == str(data)
        return deleted or folder.samefile(data)
    except (PermissionError, psutil.AccessDenied):
        # Root without CAP_SYS_PTRACE, as in most containers: only the first process shows its arguments.
        return str(data) in process.cmdline()
