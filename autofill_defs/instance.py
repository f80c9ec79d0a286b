"""The Dagster instance of an installation: its DAGSTER_HOME, its database, and the environment of its processes.

`python -m autofill_defs.instance` prepares it and prints the DAGSTER_HOME. Imports no Dagster, and so takes no time.
"""

import hashlib
import os
import secrets
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import psycopg
import sqlalchemy
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cell_engine.errors import AutofillError
from cell_engine.parts import service_url, unreachable
from cell_engine.settings import Settings, get_settings

URL_VARIABLE = "AUTOFILL_DAGSTER_DATABASE_URL"
MODULE = "autofill_defs.definitions"
LOCATION = "autofill"

# The repository's own: a link here, a file in a wheel.
INSTANCE_FILE = Path(__file__).with_name("dagster.yaml")
_DRIVER = "postgresql+psycopg2"
# A socket's whole path has at most 103 bytes on macOS, 107 on Linux.
_LONGEST_SOCKET = 100
_WORKSPACE = """\
# Written by autofill at each start: one code server for the webserver and the daemon.
load_from:
  - grpc_server:
      socket: {socket}
      location_name: {location}
"""


def prepare_instance(settings: Settings, url: str) -> Path:
    """Make the DAGSTER_HOME and Dagster's database beside the engine's at `url`; returns the former. Idempotent.

    Raises AutofillError when the database cannot be made.
    """
    home = _home(settings)
    try:
        home.mkdir(parents=True, exist_ok=True)
        socket_path(settings).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(home / "dagster.yaml", INSTANCE_FILE.read_text(encoding="utf-8"))
        _write(home / "workspace.yaml", _WORKSPACE.format(socket=socket_path(settings), location=LOCATION))
    except OSError as error:
        raise AutofillError(f"Cannot prepare Dagster's home {home}: {error.strerror} ({error.filename})") from error
    if URL_VARIABLE not in os.environ:
        _ensure_database(url)
    return home


def environment(settings: Settings, url: str) -> dict[str, str]:
    """What every Dagster process of the installation gets beside its parent's environment. Holds the password, if any:
    no file does."""
    return {
        "DAGSTER_HOME": str(_home(settings)),
        "AUTOFILL_HOME": str(settings.home),
        "AUTOFILL_DATABASE_URL": url,
        URL_VARIABLE: _dagster_url(url),
        # A tick loads files. It begins with none after 20 s, and a large one takes its time.
        "DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS": "300",
        # A run whose process has not started in so long (Dagster's own: 60) is marked as failed, though the machine is
        # but busy.
        "DAGSTER_GRPC_TIMEOUT_SECONDS": "180",
        # A backfill that is looked at while no code server answers waits for it. Else its assets count as gone, and it
        # fails for good.
        "DAGSTER_BACKFILL_RETRY_DEFINITION_CHANGED_ERROR": "1",
        # Else as long as the sensors' limit, whenever a code server is stopped in the middle of a tick.
        "DAGSTER_GRPC_SHUTDOWN_GRACE_PERIOD": "5",
    }


def socket_path(settings: Settings) -> Path:
    """Where the code server listens: whoever can connect can run code, so it is in a folder of our own."""
    near = _home(settings) / "run" / "code.sock"
    if len(os.fsencode(near)) <= _LONGEST_SOCKET:
        return near
    digest = hashlib.blake2b(os.fsencode(settings.home), digest_size=6).hexdigest()
    return Path(tempfile.gettempdir(), f"autofill-dagster-{os.geteuid()}-{digest}", "code.sock")


def _home(settings: Settings) -> Path:
    return settings.home / "dagster"


def _write(file: Path, text: str) -> None:
    """Renamed into place: several processes prepare the instance at once."""
    unfinished = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(file)


def _database_name(url: str) -> str:
    """After the engine's: one server may serve several installations, and other Dagsters."""
    return f"{conninfo_to_dict(url).get('dbname') or 'autofill'}_dagster"


def _ensure_database(url: str) -> None:
    name = _database_name(url)
    try:
        opened = psycopg.connect(url, autocommit=True, connect_timeout=10)
    except psycopg.OperationalError as error:
        raise unreachable(error) or error from None
    with opened as connection:
        if connection.execute("select from pg_database where datname = %s", [name]).rowcount:
            return
        create = sql.SQL("create database {} template template0").format(sql.Identifier(name))
        try:
            with suppress(errors.DuplicateDatabase, errors.UniqueViolation):  # another process was faster
                connection.execute(create)
        except errors.InsufficientPrivilege as error:
            raise AutofillError(
                f"The database user may not create Dagster's database {name!r}. Create it by hand (create database "
                f"{name}), or set {URL_VARIABLE} to another one, as {_DRIVER}://user:password@host:5432/{name}"
            ) from error


def _dagster_url(url: str) -> str:
    return os.environ.get(URL_VARIABLE) or with_driver(make_conninfo(url, dbname=_database_name(url)))


def with_driver(url: str) -> str:
    """A connection string as SQLAlchemy takes it: psycopg 2 by name, since with psycopg 3 installed that would be its
    choice, and dagster-postgres breaks on it."""
    parts = conninfo_to_dict(_plain(url))
    user, password, database = (parts.pop(name, None) for name in ("user", "password", "dbname"))
    # Host and port travel as parameters: there they may be a socket's folder, or several.
    query = {name: str(value) for name, value in parts.items()}
    return sqlalchemy.URL.create(
        _DRIVER,
        username=None if user is None else str(user),
        password=None if password is None else str(password),
        database=None if database is None else str(database),
        query=query,
    ).render_as_string(hide_password=False)


def _plain(url: str) -> str:
    """SQLAlchemy's way to name a driver in the scheme is not libpq's."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}{separator}{rest}"


if __name__ == "__main__":
    try:
        print(prepare_instance(get_settings(), service_url()))
    except AutofillError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
