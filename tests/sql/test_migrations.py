"""Migrations run once, in order, whoever runs them; and a process knows the schemas it can work with."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cell_engine.embedded.server import Server
from cell_engine.errors import AutofillError, SchemaVersionError
from cell_engine.store import schema
from cell_engine.store.database import Connection, connect
from cell_engine.store.migrating import migrate


@pytest.fixture
def empty(server: Server) -> Iterator[str]:
    """The URL of a database that nobody has migrated."""
    name = f"empty_{os.getpid()}"
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        yield server.dsn(name)
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def test_migrating_again_changes_nothing(empty: str) -> None:
    assert migrate(empty) == (0, schema.newest())
    assert migrate(empty) == (schema.newest(), schema.newest())
    with connect(empty, application="test") as connection:
        schema.check(connection)


def test_a_user_named_as_the_schema_finds_it(empty: str) -> None:
    # As "$user" has it for a user "autofill": names of that schema need no prefix, and to_regclass shows none.
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute(f"alter database {connection.info.dbname} set search_path = autofill, public".encode())
    assert migrate(empty) == (0, schema.newest())
    assert migrate(empty) == (schema.newest(), schema.newest())
    with connect(empty, application="test") as connection:
        schema.check(connection)
        assert connection.execute("select to_regclass('public.autofill_schema') is not null").fetchone() == (True,)


def test_a_user_who_does_not_own_the_database_is_told_so(empty: str) -> None:
    role = sql.Identifier(f"stranger_{os.getpid()}")
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute(sql.SQL("create role {} login").format(role))
        try:
            with pytest.raises(AutofillError, match="has to own the database"):
                migrate(make_conninfo(empty, user=role.as_string()[1:-1]))
        finally:
            connection.execute(sql.SQL("drop role {}").format(role))


def test_migrating_twice_at_once_is_once(empty: str) -> None:
    with ThreadPoolExecutor() as threads:
        done = list(threads.map(migrate, [empty] * 3))
    assert sorted(before for before, _ in done) == [0, schema.newest(), schema.newest()]


def test_a_database_without_a_schema_is_refused_with_what_to_do(empty: str) -> None:
    with connect(empty, application="test") as connection, pytest.raises(SchemaVersionError, match="autofill migrate"):
        schema.check(connection)


def test_code_that_a_contraction_has_left_behind_refuses_naming_both(connection: Connection) -> None:
    connection.execute("update autofill.schema_range set oldest_code = %s", [schema.newest() + 1])
    with pytest.raises(SchemaVersionError, match=rf"{schema.newest()}.*{schema.newest() + 1}.*{schema.newest()}"):
        schema.check(connection)


def test_a_newer_schema_that_only_expanded_is_worked_with(connection: Connection, database: str) -> None:
    connection.execute("update public.autofill_schema set version_num = '9999'")
    schema.check(connection)
    with pytest.raises(SchemaVersionError, match=f"9999, newer than this program's {schema.newest()}"):
        migrate(database)


def test_a_schema_older_than_the_code_needs_is_refused_naming_both(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_now = schema.newest()
    monkeypatch.setattr(schema, "newest", lambda: 9000)
    with pytest.raises(SchemaVersionError, match=rf"is {is_now}, this program needs 9000"):
        schema.check(connection)
