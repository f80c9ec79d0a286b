"""Migrations: the plain SQL files of `dbt_like_sql/migrations`, `NNNN_name.sql`, each run once in one transaction.

Alembic is the runner. Apart from `schema`, because it weighs 30 MB that workers do without.
"""

import random
import time
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import psycopg
from alembic.runtime.migration import MigrationContext
from alembic.script.base import Script, ScriptDirectory
from alembic.script.revision import RevisionMap
from sqlalchemy import Connection as SqlAlchemyConnection
from sqlalchemy import create_engine
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.pool import NullPool

from cell_engine.errors import AutofillError, SchemaVersionError
from cell_engine.store.database import SQL
from cell_engine.store.models import create_models
from cell_engine.store.schema import newest

VERSION_TABLE = "autofill_schema"

LOCK_TIMEOUT = "400ms"
"""A table's lock that is waited for stops everybody behind it, claims among them. So not for long, and again after a
pause; and for less than the server's `deadlock_timeout` (1 s), so that never a worker is the one to give way."""

PAUSE_SECONDS = (0.1, 2.0)
PATIENCE = 600.0


def migrate(url: str) -> tuple[int, int]:
    """Bring the database at `url` to the newest schema and its views along; returns the number before and after.

    Concurrent callers wait for each other, and for whoever uses what is changed; nobody waits for them any longer than
    LOCK_TIMEOUT. Raises SchemaVersionError when the database is newer than this code, and AutofillError when somebody
    holds a table for longer than PATIENCE: what was done stays, and another call goes on from there; and for a user who
    does not own the database.
    """
    # The driver is given what psycopg was: a URL or a "host=… dbname=…" string.
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql("select pg_advisory_lock(hashtext('autofill.migrate'))")
        connection.exec_driver_sql(f"set lock_timeout = '{LOCK_TIMEOUT}'")  # from here on
        connection.commit()
        context = MigrationContext.configure(
            connection,
            opts={
                "fn": lambda heads, _: _steps(connection, heads),
                "version_table": VERSION_TABLE,
                # A user of the name "autofill" has the schema of that name first in the search path.
                "version_table_schema": "public",
                "transaction_per_migration": True,
            },
        )
        before = int(context.get_current_revision() or 0)
        connection.commit()
        if before > newest():
            raise SchemaVersionError(
                f"the database schema is {before}, newer than this program's {newest()}: install its newer release"
            )
        _patiently(connection, context.run_migrations)
        raw = connection.connection.driver_connection
        assert isinstance(raw, psycopg.Connection)
        _patiently(connection, lambda: create_models(raw))
    return before, newest()


def _patiently(connection: SqlAlchemyConnection, step: Callable[[], object]) -> None:
    """Run `step`, whose transactions may each be begun anew, until all it needs could be locked."""
    began, pause = time.monotonic(), PAUSE_SECONDS[0]
    while True:
        try:
            step()
            connection.commit()
            return
        except (ProgrammingError, psycopg.errors.InsufficientPrivilege) as error:
            cause = error.orig if isinstance(error, ProgrammingError) else error
            if not isinstance(cause, psycopg.errors.InsufficientPrivilege):
                raise
            raise AutofillError(
                f"The database user may not make the schema ({str(cause).splitlines()[0]}): it has to own the database "
                "(alter database … owner to …)."
            ) from error
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            connection.rollback()
            if time.monotonic() - began > PATIENCE:
                raise AutofillError(
                    f"A table that a migration changes could not be locked for {PATIENCE / 60:.0f} minutes: a "
                    "transaction that uses it stays open (autofill.oldest_transaction shows the oldest). End it and "
                    f"run `autofill migrate` again. {str(error).strip()}"
                ) from error
        time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
        pause = min(2 * pause, PAUSE_SECONDS[1])


def _steps(connection: SqlAlchemyConnection, heads: tuple[str, ...] | Any) -> Any:
    """The migrations still to run, as Alembic wants them: a script each, made of one SQL file."""
    scripts: list[Script] = []
    for path in sorted((SQL / "migrations").glob("[0-9]*.sql")):
        module = ModuleType(f"migration_{path.stem}")
        number = path.name[:4]
        module.__dict__.update(
            revision=number,
            down_revision=scripts[-1].revision if scripts else None,
            upgrade=partial(_execute, connection, path.read_bytes()),
        )
        module.__doc__ = path.stem
        scripts.append(Script(module, number, path))
    directory = ScriptDirectory(SQL / "migrations")
    directory.revision_map = RevisionMap(lambda: scripts)
    return directory._upgrade_revs("head", heads or "base")  # type: ignore[arg-type]


def _execute(connection: SqlAlchemyConnection, text: bytes) -> None:
    raw = connection.connection.driver_connection
    assert isinstance(raw, psycopg.Connection)
    raw.execute(text)
