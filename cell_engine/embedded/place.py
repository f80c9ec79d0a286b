"""Where a home's server keeps its files: in `<home>/postgres`.

Root's server may be unable to reach that. Then the folder has a link `elsewhere` to the server's real one, so that
deleting the home starts afresh and moving it keeps the data. Nothing else is chosen, so nothing else is remembered.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from cell_engine.embedded.account import Account, acting_as_root, can_enter, default_account, owner_of
from cell_engine.errors import AutofillError

# For root's servers whose account cannot reach the home folder (below a closed /root, for one).
REACHABLE_BY_ALL = Path("/var/lib/autofill")
# Only the name of the socket in a private directory: it cannot clash with another server's.
PORT = 5432
# A socket's whole path has at most 103 bytes on macOS, 107 on Linux; "/.s.PGSQL.5432" takes 14.
_LONGEST_SOCKET_DIR = 85
# Connection strings and postgresql.conf give other characters a meaning: a comma separates directories.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._+-]+")
# Not the TMPDIR of the moment: two processes of one home must come to the same place.
_SHORT = Path("/tmp")  # noqa: S108


@dataclass(frozen=True)
class Place:
    """The folder of one server; ours, with `data` and the socket directory given to the server's account."""

    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def pid_file(self) -> Path:
        return self.data / "postmaster.pid"

    @property
    def log(self) -> Path:
        return self.data / "server.log"

    @property
    def server_lock(self) -> Path:
        return self.folder / "server.lock"

    @property
    def settings(self) -> Path:
        return self.folder / "autofill.conf"

    @property
    def socket_dir(self) -> Path:
        below = self.folder / "run"
        if len(os.fsencode(below)) <= _LONGEST_SOCKET_DIR and _PLAIN_PATH.fullmatch(str(below)):
            return below
        digest = hashlib.blake2b(os.fsencode(self.folder), digest_size=6).hexdigest()
        return _SHORT / f"autofill-{digest}"

    @property
    def socket(self) -> Path:
        return self.socket_dir / f".s.PGSQL.{PORT}"

    def give_socket_dir(self, account: Account) -> None:
        """Create the socket directory, private to the account. Root, which may read anything, connects all the same."""
        directory = self.socket_dir
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (os.geteuid(), account.uid):
            raise AutofillError(
                f"{directory} belongs to user id {status.st_uid}, so the database's socket cannot be there. "
                f"Remove it, or set AUTOFILL_HOME to another folder, with a short name."
            )
        if account.switch:
            os.chown(directory, account.uid, account.gid)
        directory.chmod(0o700)


def existing_place(home: Path) -> Place | None:
    """The place that holds this home's data, if it has any yet.

    Raises:
        AutofillError: the data belongs to somebody else.
    """
    for place in filter(None, (_near(home), _elsewhere(home))):
        try:
            owner_of(place.data)
        except FileNotFoundError:
            continue
        except PermissionError as error:
            raise _unusable(home, error) from error
        return place
    return None


def choose_place(home: Path) -> tuple[Place, Account]:
    """The place for this home's server, its folder created, and the account that runs it. Call it under `locked`."""
    place = existing_place(home)
    if place is not None:
        account = owner_of(place.data)
        if not can_enter(account, place.folder):
            raise AutofillError(
                f"The database in {place.data} belongs to user id {account.uid}, which cannot reach that folder. "
                "Open the folders above it for passing through (chmod o+x), or move it."
            )
        return place, account
    account = default_account()
    near = _near(home)
    if can_enter(account, near.folder):
        return near, account
    far = _elsewhere(home) or Place(REACHABLE_BY_ALL / secrets.token_hex(6))
    try:
        _create(REACHABLE_BY_ALL)
        _create(far.folder)
        if can_enter(account, far.folder):
            _link(home).unlink(missing_ok=True)
            _link(home).symlink_to(far.folder)
            return far, account
    except OSError as error:
        raise _unusable(home, error) from error
    raise AutofillError(
        f"User id {account.uid}, which runs the database for root, can reach neither {home} nor {REACHABLE_BY_ALL}. "
        "Set AUTOFILL_HOME to a folder that it can reach."
    )


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """Start or stop this home's server alone; waits for whoever does so now. The kernel ends it with its holder."""
    folder = _near(home).folder
    try:
        _create(folder)
        lock = open_lock(folder / "start.lock")
    except OSError as error:
        raise _unusable(home, error) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def open_lock(file: Path) -> TextIO:
    """A file to lock, closed to other accounts: reading it would be enough to hold the lock."""
    return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), "w")


def _near(home: Path) -> Place:
    return Place(home / "postgres")


def _link(home: Path) -> Path:
    return _near(home).folder / "elsewhere"


def _elsewhere(home: Path) -> Place | None:
    link = _link(home)
    return Place(link.readlink()) if link.is_symlink() else None


def _create(folder: Path) -> None:
    """Create our folder. Only its own mode is set, since root's umask may close it to the account; never a parent's."""
    folder.mkdir(parents=True, exist_ok=True)
    if acting_as_root():
        folder.chmod(0o755)


def _unusable(home: Path, error: OSError) -> AutofillError:
    return AutofillError(
        f"The embedded database cannot use {error.filename or home} ({error.strerror}). "
        "Set AUTOFILL_HOME to a folder that you can write to."
    )
