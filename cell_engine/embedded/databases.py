"""Databases of the embedded server, and which database a process's settings mean."""

from __future__ import annotations

from contextlib import suppress

import psycopg
from psycopg import errors, sql

from cell_engine.embedded.server import Server, ensure
from cell_engine.settings import Settings

PRODUCT_DATABASE = "autofill"


def ensure_database(server: Server, name: str) -> str:
    """Create the database if the server has none of that name; returns its URL."""
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        exists = connection.execute("select from pg_database where datname = %s", [name]).rowcount > 0
        if not exists:
            # template0, because template1 cannot be copied while anyone is connected to it.
            create = sql.SQL("create database {} template template0").format(sql.Identifier(name))
            with suppress(errors.DuplicateDatabase, errors.UniqueViolation):  # another process was faster
                connection.execute(create)
    return server.dsn(name)


def database_url(settings: Settings) -> str:
    """The database a process works on: the one it was given, else the embedded server's, started if need be."""
    if settings.database_url is not None:
        return settings.database_url.get_secret_value()
    return ensure_database(ensure(settings.home), PRODUCT_DATABASE)
