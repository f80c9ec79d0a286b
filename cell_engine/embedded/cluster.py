"""Creating a data directory, and the settings its server starts with."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from cell_engine.embedded.account import Account, run_as, write_as
from cell_engine.embedded.binaries import Binaries
from cell_engine.embedded.place import PORT, Place
from cell_engine.errors import AutofillError

_LONGEST_LOG = 10_000_000  # bytes


def data_version(data: Path) -> int:
    """The major version of PostgreSQL that a data directory belongs to."""
    try:
        return int((data / "PG_VERSION").read_text().strip())
    except (OSError, ValueError) as error:
        raise AutofillError(
            f"{data} is not a PostgreSQL data directory (its PG_VERSION is missing or damaged). "
            "Restore it from a backup, or move it away to start with an empty database."
        ) from error


def create_data(place: Place, binaries: Binaries, account: Account) -> None:
    """Create the place's data directory, all or nothing: who dies on the way leaves rubbish for the next to clear."""
    for abandoned in place.folder.glob("data.new-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    # A new name each time: the initdb of a killed caller may still be running in the former one.
    data = place.folder / f"data.new-{secrets.token_hex(4)}"
    data.mkdir(mode=0o700)
    if account.switch:
        os.chown(data, account.uid, account.gid)
    # Sorting by code point, the same on every system: the C library's order changes with its version, breaking indexes.
    locale = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8") if binaries.major >= 17 else ("--no-locale",)
    created = run_as(
        account,
        binaries.folder / "initdb",
        *("--pgdata", data, "--username=postgres", "--encoding=UTF8", "--data-checksums", *locale),
        # No password: only those who can enter the socket's directory can connect, and it is private to one account.
        # There is no network port, and would one be opened by hand, nobody gets in through it.
        *("--auth-local=trust", "--auth-host=reject"),
    )
    if not created.ok:
        shutil.rmtree(data, ignore_errors=True)
        raise AutofillError(f"Cannot create a database in {place.data}; initdb says:\n{created.output.strip()}")
    configuration = data / "postgresql.conf"
    # Outside of the data directory, where root can write without following what the account has put there.
    include = f"\ninclude_if_exists = '../{place.settings.name}'\n"
    write_as(account, configuration, configuration.read_text() + include)
    data.rename(place.data)
    _sync(place.folder)


def write_settings(place: Place, binaries: Binaries) -> None:
    """Write the settings that every start begins with; what `ALTER SYSTEM` has set wins over them."""
    settings = {
        "unix_socket_directories": place.socket_dir,
        "unix_socket_permissions": "0700",
        "listen_addresses": "",
        "port": PORT,
        "max_connections": 100,
        "shared_buffers": "128MB",
        "timezone": "UTC",
        "log_timezone": "UTC",
        # An answer that was paid for is on disk when we say so.
        "fsync": "on",
    }
    if binaries.has_library("pg_stat_statements"):
        settings["shared_preload_libraries"] = "pg_stat_statements"
    lines = [f"{name} = '{value}'\n" for name, value in settings.items()]
    place.settings.write_text("# Written by autofill at each start; ALTER SYSTEM wins over it.\n" + "".join(lines))
    place.settings.chmod(0o644)


def rotate_log(log: Path) -> None:
    """Keep one older log, so that a server restarted for years does not fill the disk."""
    if log.exists() and log.stat().st_size > _LONGEST_LOG:
        log.rename(log.with_suffix(".log.1"))


def log_tail(log: Path, lines: int = 15) -> str:
    """The end of the server's log, for an error message."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def _sync(folder: Path) -> None:
    """Make a rename in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
