"""A query of another database as a source: read-only, by key, and its address in no message."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from cell_engine.embedded.server import Server
from cell_engine.errors import BadValueError
from cell_engine.load import LoadError
from cell_engine.load.query_rows import open_query, sync_query
from cell_engine.specs.compile import compile_text
from cell_engine.store.applying import apply
from cell_engine.store.collections import Collection, find_collection
from cell_engine.store.database import Connection
from tests.load.conftest import SPEC, Write

MADE = """
create table article (id uuid, title text, price numeric, count numeric, sold boolean, day date, moment timestamptz,
    tags text[], extra jsonb);
insert into article values
    ('00000000-0000-0000-0000-000000000001', '100%', 1.50, 3.0, true, '2026-01-02', '2026-01-02 03:04+00', '{x,y}', '{"a": null}'),
    ('00000000-0000-0000-0000-000000000002', null, null, 1.5, null, null, null, null, null),
    ('00000000-0000-0000-0000-000000000003', 'c', 2, 2.5, false, null, null, null, null);
"""  # noqa: E501
SELECT = "select id as code, title, price, count, sold, day, moment, tags, extra from article where '%' like '%';\n"


@pytest.fixture
def other(server: Server, database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection]:
    """Another database, which the environment knows as SHOP."""
    name = f"{database.rpartition('/')[2].partition('?')[0]}_other"
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        monkeypatch.setenv("AUTOFILL_SOURCE_SHOP", server.dsn(name))
        with psycopg.connect(server.dsn(name), autocommit=True) as made:
            made.execute(MADE.encode())
            yield made
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def things(connection: Connection) -> Collection:
    apply(connection, compile_text(SPEC.replace("name: things\n", "name: things\nkey: code\n")), actor="test")
    return find_collection(connection, "demo/things")


def test_rows_of_a_query_are_synced(
    connection: Connection, things: Collection, other: psycopg.Connection, write: Write
) -> None:
    query = open_query(write("articles.sql", SELECT), "shop")
    done = sync_query(connection, things, query, actor="ann")
    assert (done.inserted, done.rejected_lines) == (1, 2)
    assert [line for line, _ in done.rejected] == [2, 3]
    found = connection.execute("select inputs from autofill.row").fetchone()
    assert found is not None
    assert list(found.inputs.values()) == [
        "00000000-0000-0000-0000-000000000001", "100%", 1.5, 3, True, "2026-01-02", "2026-01-02T03:04:00+00:00",
        ["x", "y"], {"a": None},
    ]  # fmt: skip
    other.execute("update article set count = 1")
    assert sync_query(connection, things, query, actor="ann").inserted == 2
    other.execute("update article set price = 9 where title = 'c'")
    assert sync_query(connection, things, query, actor="ann").updated == 1
    other.execute("delete from article where title = 'c'")
    assert sync_query(connection, things, query, actor="ann").deleted == 1
    other.execute("delete from article")
    with pytest.raises(LoadError, match=r"articles.sql of shop: it lacks 2 of the 2 rows"):
        sync_query(connection, things, query, actor="ann")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("delete from article returning id as code", "syntax error|read-only"),
        ("with gone as (delete from article returning id) select id as code from gone", "read-only|data-modifying"),
        ("select 'a' as code; commit; drop table article", "multiple commands"),
        ("select id as code, no_such from article", "no_such"),
        ("select id from article", "'id', is no column"),
        ("select code from article", "does not exist"),
    ],
)
def test_a_query_changes_nothing_and_its_errors_are_told(
    connection: Connection, things: Collection, other: psycopg.Connection, write: Write, text: str, said: str
) -> None:
    with pytest.raises(LoadError, match=said) as refused:
        sync_query(connection, things, open_query(write("a.sql", text), "SHOP"), actor="ann")
    assert "a.sql of SHOP" in str(refused.value)
    assert other.execute("select count(*) from article").fetchone() == (3,)


def test_where_it_is_stands_nowhere(
    connection: Connection, things: Collection, tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("a.sql", "select 1 as code")
    with pytest.raises(BadValueError, match="AUTOFILL_SOURCE_NOWHERE is not set"):
        open_query(path, "nowhere")
    with pytest.raises(BadValueError, match="a name of letters") as named:
        open_query(path, "postgresql://me:hunter2@host/db")
    assert "hunter2" not in str(named.value)
    monkeypatch.setenv("AUTOFILL_SOURCE_SHOP", "postgresql://me:hunter2@127.0.0.1:1/db?connect_timeout=2")
    query = open_query(path, "shop")
    with pytest.raises(LoadError) as refused:
        sync_query(connection, things, query, actor="ann")
    assert "hunter2" not in f"{refused.value!r} {query!r} {query.source} {query.key}"
    with pytest.raises(LoadError, match="No such file"):
        open_query(tmp_path / "none.sql", "shop")
    with pytest.raises(LoadError, match="no query"):
        open_query(write("b.sql", " ;\n"), "shop")
