"""The one place that puts a process together from its settings: CLI, workers, janitor and Dagster all start here."""

import psycopg

from cell_engine.embedded import database_url
from cell_engine.errors import AutofillError, UnreachableError
from cell_engine.log import redact_text
from cell_engine.settings import Settings, get_settings
from cell_engine.store import schema
from cell_engine.store.database import Connection, connect

# Of SQLSTATE: connection, server shutting down or out of resources, wrong credentials, no such database.
_CONNECTION_CLASSES = ("08", "57", "53", "28", "3D")


class NoDatabaseError(AutofillError):
    """A process that is not all-in-one was started without a database."""

    exit_code = 2


def service_url(settings: Settings | None = None) -> str:
    """The database of a process that others work beside (a worker, a janitor, Dagster): always given, never started.

    Raises NoDatabaseError without AUTOFILL_DATABASE_URL: an embedded server of its own would be an empty queue.
    """
    settings = settings or get_settings()
    if settings.database_url is None:
        raise NoDatabaseError(
            "AUTOFILL_DATABASE_URL is not set: this process works beside others and needs their database. "
            "`autofill up` starts everything in one; `autofill status` prints the URL of what it started."
        )
    return settings.database_url.get_secret_value()


def open_store(application: str, url: str | None = None) -> Connection:
    """A checked connection for one process. Without `url`, the database of the settings, the embedded one started if
    need be. Raises SchemaVersionError when this code cannot work with its schema, naming both numbers."""
    connection = connect(url if url is not None else database_url(get_settings()), application=application)
    try:
        schema.check(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def unreachable(error: psycopg.OperationalError) -> UnreachableError | None:
    """What to tell about a database that cannot be reached; None for every other error."""
    if error.sqlstate is not None and error.sqlstate[:2] not in _CONNECTION_CLASSES:
        return None
    return UnreachableError(
        f"The database cannot be reached: {redact_text(str(error)).strip()}\n"
        "Check AUTOFILL_DATABASE_URL; without it, the embedded server of AUTOFILL_HOME is used."
    )
