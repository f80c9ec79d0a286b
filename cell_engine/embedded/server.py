"""Starting, finding and stopping the server of a home folder.

Two locks of the kernel, which end with their holders however those die. `locked(home)` is held by whoever starts or
stops the server. `server.lock` is inherited by the server's processes: while it is taken, some of them live, perhaps
out of our sight in another container, and a second server on the same data would destroy it.
"""

from __future__ import annotations

import fcntl
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO
from urllib.parse import quote

import psutil
from psycopg import pq
from psycopg.conninfo import make_conninfo

from cell_engine.embedded.account import Account, Finished, run_as
from cell_engine.embedded.binaries import Binaries, find_binaries, reachable_binaries
from cell_engine.embedded.cluster import create_data, data_version, log_tail, rotate_log, write_settings
from cell_engine.embedded.place import PORT, Place, choose_place, existing_place, locked, open_lock
from cell_engine.embedded.processes import disown_pid_file, orphans, postmaster, says_ready
from cell_engine.errors import AutofillError

# Seconds. Recovery after a crash reads up to a gigabyte of log; a shutdown writes out all of shared_buffers.
_START_PATIENCE = 120.0
_STOP_PATIENCE = 60.0
# Processes of a killed server leave by themselves within milliseconds, except from a long computation.
_ORPHAN_PATIENCE = 1.0
_POLL = 0.02


@dataclass(frozen=True)
class Server:
    """A running server: where to connect, where its data lies, and its major version."""

    socket_dir: Path
    port: int
    data_dir: Path
    version: int

    def dsn(self, dbname: str = "postgres") -> str:
        """URL of one of its databases, for psycopg, psql, and (with a driver in the scheme) SQLAlchemy."""
        host = quote(str(self.socket_dir), safe="")
        return f"postgresql://postgres@/{quote(dbname, safe='')}?host={host}&port={self.port}"


def running(home: Path) -> Server | None:
    """The home's server if it accepts connections now; never starts or waits."""
    place = existing_place(_canonical(home))
    return _answering(place) if place else None


def ensure(home: Path) -> Server:
    """The home's server, started (and its data created) if it is not running. A few milliseconds if it is.

    Safe to call from any number of processes; callers may be killed at any point.

    Raises:
        AutofillError: no usable PostgreSQL, data of another version or user, or the server does not start.
    """
    home = _canonical(home)
    if server := running(home):
        return server
    with locked(home):
        place, account = choose_place(home)
        if server := _answering(place):
            return server
        binaries = _binaries_for(place, account)
        if not place.data.exists():
            create_data(place, binaries, account)
        return _bring_up(place, binaries, account)


def stop(home: Path) -> bool:
    """Stop the home's server, whoever started it, and wait until none of its processes is left.

    Open transactions are rolled back and their sessions closed. Returns whether there was anything to stop.

    Raises:
        AutofillError: some process of it cannot be seen from here.
    """
    home = _canonical(home)
    if existing_place(home) is None:
        return False
    with locked(home):
        place = existing_place(home)
        if place is None:
            return False
        stopped = _shut_down(place)
        if place.socket_dir.parent != place.folder:
            shutil.rmtree(place.socket_dir, ignore_errors=True)
        return stopped


def _canonical(home: Path) -> Path:
    return home.expanduser().resolve()


def _answering(place: Place) -> Server | None:
    """The server if it answers. Asked without logging in: one with all its connections in use is running, too."""
    # Without its pid file it is the server of data deleted meanwhile, about to notice and to quit.
    if not place.pid_file.exists():
        return None
    target = make_conninfo(host=str(place.socket_dir), port=PORT, user="postgres", dbname="postgres", connect_timeout=3)
    if pq.PGconn.ping(target.encode()) != pq.Ping.OK:
        return None
    return Server(place.socket_dir, PORT, place.data, data_version(place.data))


def _binaries_for(place: Place, account: Account) -> Binaries:
    version = data_version(place.data) if place.data.exists() else None
    try:
        binaries = find_binaries(version)
    except AutofillError as error:
        if version is None:
            raise
        raise AutofillError(
            f"The database in {place.data} was created by PostgreSQL {version}; no other version can open it. {error} "
            f"Install PostgreSQL {version}, or set AUTOFILL_HOME to another folder to start with an empty database. "
            f"To move to a newer version, dump it with the old one (pg_dumpall) and restore it into the new."
        ) from error
    return reachable_binaries(binaries, account, place.folder)


def _bring_up(place: Place, binaries: Binaries, account: Account) -> Server:
    """Start the server, or wait for one that is on its way up or down, until it answers."""
    failures = 0
    printed = ""
    deadline = time.monotonic() + _START_PATIENCE
    while failures < 2 and time.monotonic() < deadline:
        if server := _answering(place):
            return server
        with _server_lock(place) as lock:
            if lock is not None and postmaster(place.pid_file) is None:
                started = _start(place, binaries, account, lock)
                if not started.ok and postmaster(place.pid_file) is None:
                    failures += 1
                    printed = started.output.strip()
                continue
        _wait_for_others(place)
    raise AutofillError(
        f"The database server in {place.data} does not start.\n{printed}\n"
        f"The end of its log, {place.log}:\n{log_tail(place.log)}"
    )


def _start(place: Place, binaries: Binaries, account: Account, lock: TextIO) -> Finished:
    """Start the server and wait until it is up or has failed."""
    place.give_socket_dir(account)
    _clear_socket_dir(place)
    write_settings(place, binaries)
    rotate_log(place.log)
    disown_pid_file(place.pid_file, account)
    # pg_ctl puts it into a session of its own, so that our terminal's Ctrl-C does not reach it.
    return run_as(
        account,
        binaries.folder / "pg_ctl",
        *("start", "--wait", "--timeout", str(int(_START_PATIENCE)), "--pgdata", place.data, "--log", place.log),
        keep_open=(lock.fileno(),),
    )


def _clear_socket_dir(place: Place) -> None:
    """Remove what a killed server left there: PostgreSQL takes its pid, reused or not yet reaped, for a live server."""
    left = list(place.socket_dir.iterdir())
    if left:
        # Perhaps a live one's whose data was deleted from this very path: it would remove our socket when it notices.
        _kill_orphans(place)
    for file in left:
        file.unlink(missing_ok=True)


def _wait_for_others(place: Place) -> None:
    """Processes of a server live but it does not answer: give them a moment, and end those that will never answer."""
    if _await_postmaster(place) is None:
        _kill_orphans(place)
    elif says_ready(place.pid_file) and not place.socket.exists():
        # Someone tidied up /tmp: nobody can ever connect to it again.
        _shut_down(place)
    else:
        time.sleep(_POLL)


def _shut_down(place: Place) -> bool:
    """Stop whatever serves the data; returns whether anything did."""
    if _is_free(place):
        return False
    first = _await_postmaster(place)
    if first is None:
        _kill_orphans(place)
    else:
        for how in (signal.SIGINT, signal.SIGQUIT):  # "fast", then "immediate"
            _send(first, how)
            if _wait_until_free(place, _STOP_PATIENCE):
                break
    if not _wait_until_free(place, _ORPHAN_PATIENCE):
        raise AutofillError(
            f"A process that cannot be seen from here, perhaps in another container, still serves the database in "
            f"{place.data}. Stop it there."
        )
    return True


def _await_postmaster(place: Place) -> psutil.Process | None:
    """The first process of a server. If there are only others, they get a moment to leave or to come by one.

    They may be left of a killed server and about to notice, or those of one that has not written its pid file yet (its
    starter was killed), or in another container, out of our sight.
    """
    deadline = time.monotonic() + _ORPHAN_PATIENCE
    while (first := postmaster(place.pid_file)) is None and not _is_free(place) and time.monotonic() < deadline:
        time.sleep(_POLL)
    return first


def _kill_orphans(place: Place) -> None:
    """Kill what is left of a dead server. Nothing is lost: the next start recovers as after any crash."""
    deadline = time.monotonic() + _ORPHAN_PATIENCE
    while (left := orphans(place.data)) and time.monotonic() < deadline:
        for process in left:
            _send(process, signal.SIGKILL)
        time.sleep(_POLL)


def _send(process: psutil.Process, how: signal.Signals) -> None:
    try:
        process.send_signal(how)
    except psutil.NoSuchProcess:
        return


@contextmanager
def _server_lock(place: Place) -> Iterator[TextIO | None]:
    """The lock that a started server inherits, or None while processes of one hold it."""
    with open_lock(place.server_lock) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield lock


def _is_free(place: Place) -> bool:
    with _server_lock(place) as lock:
        return lock is not None and postmaster(place.pid_file) is None


def _wait_until_free(place: Place, patience: float) -> bool:
    """Wait for the end of every process of the server, at most `patience` seconds."""
    deadline = time.monotonic() + patience
    while not (free := _is_free(place)) and time.monotonic() < deadline:
        time.sleep(_POLL)
    return free
