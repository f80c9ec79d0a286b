"""One real PostgreSQL server a test session, shared by the parallel processes; a database of its own for each test
that needs one, copied from a migrated template (advisory locks are per database)."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from cell_engine.embedded import ensure, stop
from cell_engine.embedded.server import Server
from cell_engine.store.database import Connection, connect
from cell_engine.store.migrating import migrate

TEMPLATE = "autofill_template"
# Databases are many small files, made and gone within a second: on a disk one costs 60 to 200 ms, the more the more of
# them have gone before, and here 13.
MEMORY = Path("/dev/shm")
_numbers = count()


def _has_room(folder: Path) -> bool:
    return folder.is_dir() and shutil.disk_usage(folder).free > 4e9


def pytest_configure(config: pytest.Config) -> None:
    # The controller makes the server's home, which goes with the session; the parallel workers find it by name.
    if not hasattr(config, "workerinput"):
        folder = Path(tempfile.mkdtemp(prefix="autofill-test-", dir=MEMORY if _has_room(MEMORY) else None))
        folder.chmod(0o755)  # as root, the server runs as another user, and has to get in
        os.environ["AUTOFILL_TEST_HOME"] = str(folder / "home")
        # What tests and their processes take for /tmp.
        temporary = folder / "tmp"
        temporary.mkdir(0o755)
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
        # A developer's own settings are not the tests'.
        for name in (
            "AUTOFILL_DATABASE_URL",
            "AUTOFILL_HOME",
            "AUTOFILL_PRICES",
            "AUTOFILL_ASK_ABOVE",
            "AUTOFILL_FILES",
            "AUTOFILL_HEALTH_PORT",
            "AUTOFILL_HEALTH_ADDRESS",
            "AUTOFILL_DRAIN",
            "OPENAI_API_KEY",
            "OPENAI_BASE_URL",
            "DAGSTER_HOME",
        ):
            os.environ.pop(name, None)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """For `-n auto`: one more than there are processors, since tests wait as often as they compute."""
    return (os.cpu_count() or 1) + 1


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        home = Path(os.environ.pop("AUTOFILL_TEST_HOME"))
        stop(home)
        shutil.rmtree(home.parent, ignore_errors=True)


@pytest.fixture(scope="session")
def server() -> Server:
    """The session's PostgreSQL, with the template that tests' databases are copied from."""
    server = ensure(Path(os.environ["AUTOFILL_TEST_HOME"]))
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
        # One of the parallel processes makes the template, the others wait for it.
        connection.execute("select pg_advisory_lock(1)")
        made = connection.execute("select 1 from pg_database where datname = %s", [TEMPLATE]).fetchone()
        if made is None:
            # Thousands of databases are made here and dropped. What survives a machine that loses power is not asked of
            # this server; those that tests kill are their own, and keep their settings.
            for setting in ("fsync", "full_page_writes"):
                connection.execute(sql.SQL("alter system set {} = off").format(sql.Identifier(setting)))
            connection.execute("select pg_reload_conf()")
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(TEMPLATE)))
            migrate(server.dsn(TEMPLATE))
    return server


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """The URL of a migrated database of the test's own."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
        connection.execute(
            sql.SQL("create database {} template {} strategy file_copy").format(
                sql.Identifier(name), sql.Identifier(TEMPLATE)
            )
        )
        yield server.dsn(name)
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    with connect(database, application="test") as connection:
        yield connection


@pytest.fixture
def settled_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that a test has just written counts as complete at once."""
    monkeypatch.setattr("cell_engine.files.local.SETTLED_SECONDS", 0.0)
