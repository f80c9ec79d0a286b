"""Mechanic 19: the typed view of a collection, a new one a version; no value and no reader stands in its way."""

import re
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import psycopg
import pytest
from psycopg import sql

from cell_engine.plan import plan
from cell_engine.specs.compile import compile_text
from cell_engine.specs.text import Json
from cell_engine.store.applying import Applied, apply
from cell_engine.store.batches import add_batch
from cell_engine.store.changes import edit, reset
from cell_engine.store.collections import Collection, find_collection, load_version
from cell_engine.store.database import Connection
from cell_engine.store.wide_view import SCHEMA, refresh_views, replace_view, view_name
from tests.engine import Claimer, make, sheet, wait_for_lock
from tests.store.conftest import Beside, Opened

SQL_TYPES = {
    "text": "text", "number": "numeric", "integer": "bigint", "boolean": "boolean", "date": "date",
    "datetime": "timestamp with time zone", "choice": "text", "list": "jsonb", "json": "jsonb", "url": "text",
    "file": "text",
}  # fmt: skip


def table(columns: Mapping[str, str], namespace: str = "test", name: str = "sheet") -> str:
    """A collection of input columns, by name and type."""
    more = {"choice": ", choices: [x, y]", "list": ", items: json"}
    fields = [f"  - {{name: {column}, type: {type_}{more.get(type_, '')}}}" for column, type_ in columns.items()]
    return "\n".join([f"namespace: {namespace}", f"name: {name}", "columns:", *fields])


def applied(connection: Connection, spec: str) -> Applied:
    return apply(connection, compile_text(spec), actor="me")


def load(connection: Connection, made: Applied, *rows: Mapping[str, Json], key: str = "batch") -> Collection:
    by_id = [{made.version.by_name[name].id: value for name, value in row.items()} for row in rows]
    add_batch(connection, made.version, key, by_id, source="test", actor="test", demand=False)
    return find_collection(connection, made.collection.full_name)


def named(collection: Collection) -> sql.Identifier:
    return sql.Identifier(SCHEMA, view_name(collection))


def shown(connection: Connection, collection: Collection) -> list[dict[str, Json]]:
    """The view's tuples as JSON, times in UTC."""
    connection.execute("set timezone = 'UTC'")
    query = sql.SQL("select to_jsonb(shown) as row from {} as shown order by row_id").format(named(collection))
    return [one.row for one in connection.execute(query)]


def types(connection: Connection, collection: Collection) -> dict[str, str]:
    """The view's columns in order, with their types."""
    found = connection.execute(
        "select attname, format_type(atttypid, atttypmod) as type from pg_attribute "
        "join pg_class on pg_class.oid = attrelid where relnamespace = %s::regnamespace and relname = %s "
        "and attnum > 0 order by attnum",
        [SCHEMA, view_name(collection)],
    )
    return {one.attname: one.type for one in found}


def test_each_type_is_its_own_in_sql_and_loses_nothing(connection: Connection) -> None:
    made = applied(connection, table({f"a_{name}": name for name in SQL_TYPES}))
    assert types(connection, made.collection) == {
        "row_id": "bigint",
        "batch": "text",
        **{f"a_{name}": type_ for name, type_ in SQL_TYPES.items()},
    }
    row: dict[str, Json] = {
        "a_text": "0870", "a_number": 0.1, "a_integer": -(2**63), "a_boolean": False, "a_date": "2024-02-29",
        "a_datetime": "2026-01-01T00:00:00.000001+23:59", "a_choice": "y", "a_list": [1, None, {}], "a_json": {"k": []},
        "a_url": "https://example.org/%s{}", "a_file": "a/%s{}.pdf",
    }  # fmt: skip
    assert shown(connection, load(connection, made, row, key="one")) == [
        {**row, "row_id": 1, "batch": "one", "a_datetime": "2025-12-31T00:01:00.000001+00:00"}
    ]


MISFITS: list[Json] = [
    "", "x", "12", "1e5", "NaN", "true", "2023-02-29", "1900-02-29", "2024-04-31", "2024-13-01", "0000-01-01",
    "2024-1-1", "2024-02-29T25:00:00Z", "2024-02-30T10:00:00Z", "2024-02-29T10:00:00", "2024-02-29T10:00:60Z",
    "infinity", "now", "2024-02-29T10:00:00+24:00", "99999-01-01", "2024-02-29\n", "null", "[1]", "{}",
    12, 1.5, 2**63, -(2**63) - 1, 10**300, 5e-324, True, [1, "x"], [], {"k": "v"}, {},
]  # fmt: skip


@pytest.mark.parametrize("type_", SQL_TYPES)
def test_a_value_of_another_type_is_null_and_kills_nothing(connection: Connection, type_: str) -> None:
    made = applied(connection, table({"a": "json", "b": "json"}))
    load(connection, made, *({"a": value, "b": 1} for value in MISFITS), {"b": 2})
    edited = add_batch(
        connection, made.version, "edited", [{} for _ in MISFITS], source="test", actor="test", demand=False
    )[0]
    for row_id, value in enumerate(MISFITS, edited.first_row):
        edit(connection, made.collection.id, row_id, {made.version.by_name["a"].id: value}, actor="me")
    now = applied(connection, table({"a": type_, "b": "json"}))
    values = [one["a"] for one in shown(connection, now.collection)]
    fits = {
        "text": lambda value: isinstance(value, str),
        "choice": lambda value: isinstance(value, str),
        "url": lambda value: isinstance(value, str),
        "file": lambda value: isinstance(value, str),
        "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
        "integer": lambda value: type(value) is int and -(2**63) <= value < 2**63,
        "boolean": lambda value: isinstance(value, bool),
        "date": lambda value: False,
        "datetime": lambda value: False,
        "list": lambda value: isinstance(value, list),
        "json": lambda value: True,
    }[type_]
    expected = [value if fits(value) else None for value in MISFITS]
    assert values == [*expected, None, *expected]


def test_a_text_that_is_a_date_is_one_when_the_column_becomes_it(connection: Connection) -> None:
    collection = load(
        connection,
        applied(connection, table({"day": "text", "at": "text"})),
        {"day": "2024-02-29", "at": "2024-02-29T10:00-15:30"},
        {"day": "2000-02-29", "at": "2024-02-29T10:00:00.5Z"},
    )
    applied(connection, table({"day": "date", "at": "datetime"}))
    assert [(one["day"], one["at"]) for one in shown(connection, collection)] == [
        ("2024-02-29", "2024-03-01T01:30:00+00:00"),
        ("2000-02-29", "2024-02-29T10:00:00.5+00:00"),
    ]


def test_a_persons_value_is_shown_a_blank_too_until_it_is_given_up(connection: Connection) -> None:
    made = make(connection, sheet("a", "b: a"), rows=[{"a": "x"}, {"a": "y"}])
    Claimer(connection).work_off()
    a, b = made.id("a"), made.id("b")
    edit(connection, made.collection.id, 1, {a: "mine", b: None}, actor="me")
    edit(connection, made.collection.id, 2, {a: None, b: "mine"}, actor="me")
    assert [(one["a"], one["b"]) for one in shown(connection, made.collection)] == [("mine", None), (None, "mine")]
    reset(connection, made.collection.id, 1, [a, b], actor="me")
    assert shown(connection, made.collection)[0]["a"] == "x"


def test_an_answer_is_shown_only_under_the_definition_that_gave_it(connection: Connection) -> None:
    make(connection, sheet("a", "b: a", "c: a"), rows=[{"a": "x"}])
    claimer = Claimer(connection)
    claimer.work_off()
    collection = applied(connection, sheet("a", "b@2: a", "c: a")).collection
    assert [(one["b"], one["c"]) for one in shown(connection, collection)] == [(None, "c(x)")]
    back = applied(connection, sheet("a", "b: a", "c: a", "more: a"))
    assert shown(connection, collection)[0]["b"] == "b(x)"
    applied(connection, sheet("a", "b@2: a", "c: a"))
    claimer.work_off(lambda due: f"{due.column.name} again")
    assert [(one["b"], one["c"]) for one in shown(connection, back.collection)] == [("b again", "c(x)")]


def test_errors_and_blocked_cells_are_null(connection: Connection) -> None:
    made = make(connection, sheet("a", "b: a", "c: b"), rows=[{"a": "x"}])
    claimer = Claimer(connection)
    claimer.work_off()
    edit(connection, made.collection.id, 1, {made.id("a"): "y"}, actor="me")
    (visit,) = claimer.claim()
    steps = plan(visit.row, made.version, visit.asked)
    failed = claimer.answer(visit, made.id("b"), None, steps, error_class="refused", error="no")
    claimer.flush([failed])
    reading = claimer.reread(visit)
    assert reading is not None
    claimer.visit(reading)
    assert shown(connection, made.collection) == [{"row_id": 1, "batch": "batch", "a": "y", "b": None, "c": None}]


def test_deleted_rows_and_columns_are_hidden_and_renamed_ones_follow(connection: Connection) -> None:
    made = applied(connection, table({"a": "text", "b": "text"}))
    collection = load(connection, made, {"a": "1", "b": "1"}, {"a": "2", "b": "2"})
    connection.execute("update autofill.row set deleted_at = now() where row_id = 1")
    applied(connection, table({"a": "text"}) + "\n  - {id: b, name: renamed, type: text}")
    assert shown(connection, collection) == [{"row_id": 2, "batch": "batch", "a": "2", "renamed": "2"}]
    applied(connection, table({"a": "text"}))
    assert shown(connection, collection) == [{"row_id": 2, "batch": "batch", "a": "2"}]
    applied(connection, table({"a": "text", "b": "text"}))
    assert shown(connection, collection) == [{"row_id": 2, "batch": "batch", "a": "2", "b": "2"}]


def test_hostile_names_are_names(connection: Connection) -> None:
    names = ["row_id", "Batch", "ctid", "select", "user", "value", "cell", "shown", "row", "key", "C" * 63]
    made = applied(connection, table(dict.fromkeys(names, "text"), namespace="Select", name="table"))
    collection = load(connection, made, {name: name for name in names})
    found = connection.execute('select * from autofill_views."Select__table"').fetchone()
    assert found is not None
    assert list(types(connection, collection)) == ["_row_id", "_batch", *names]
    assert tuple(found) == (1, "batch", *names)


def test_no_two_collections_have_one_view(connection: Connection) -> None:
    long = "n" * 63
    pairs = [
        ("a__b", "c"), ("a", "b__c"), ("a_", "b"), ("a", "b"), ("A", "b"), (long, long), (long, long[1:]),
        (long[:30], long[:31]), (long[:31], long[:31]),
    ]  # fmt: skip
    collections = [applied(connection, table({"a": "text"}, *pair)).collection for pair in pairs]
    names = [view_name(one) for one in collections]
    assert names[3] == "a__b"
    assert names[7] == f"{long[:30]}__{long[:31]}"
    assert len({*names}) == len(pairs)
    assert max(map(len, names)) == 63
    found = connection.execute("select relname from pg_class where relnamespace = %s::regnamespace", [SCHEMA])
    assert {one.relname for one in found} == {*names}
    # the names of this code's collections are stable: the same again finds the same view
    for pair in pairs:
        applied(connection, table({"a": "text", "b": "text"}, *pair))
    assert all("b" in types(connection, one) for one in collections)


def test_the_same_spec_again_leaves_the_view_alone(connection: Connection) -> None:
    spec = table({"a": "text"})
    made = applied(connection, spec)
    before = connection.execute("select oid from pg_class where relname = 'test__sheet'").fetchone()
    assert not applied(connection, spec).created
    assert connection.execute("select oid from pg_class where relname = 'test__sheet'").fetchone() == before
    assert refresh_views(connection) == []
    assert made.created


def test_a_view_of_many_columns_and_versions(connection: Connection) -> None:
    for count in (1, 2, 200):
        made = applied(connection, sheet("a", *(f"b{n}: a" for n in range(count))))
    collection = load(connection, made, {"a": "x"})
    assert len(shown(connection, collection)[0]) == 203


def test_an_open_report_does_not_keep_a_version_from_being_applied(connection: Connection, opened: Opened) -> None:
    collection = load(connection, applied(connection, table({"a": "text"})), {"a": "x"})
    reader = opened("reader")
    with reader.transaction():
        assert len(shown(reader, collection)) == 1
        now = applied(connection, table({"b": "text"}))
        assert now.created
        # it stays what it was, and readable to all, until the reader is done
        assert shown(reader, collection) == [{"row_id": 1, "batch": "batch", "a": "x"}]
        assert [*types(connection, collection)] == ["row_id", "batch", "a"]
        assert refresh_views(connection) == []
    assert refresh_views(connection) == ["test/sheet"]
    assert [*types(connection, collection)] == ["row_id", "batch", "b"]
    assert refresh_views(connection) == []
    timeout = connection.execute("show lock_timeout").fetchone()
    assert timeout == ("0",)


def test_a_swap_waits_for_a_short_read(connection: Connection, opened: Opened, beside: Beside) -> None:
    collection = load(connection, applied(connection, table({"a": "text"})), {"a": "x"})
    reader, applier = opened("reader"), opened("applier")
    with reader.transaction():
        shown(reader, collection)
        swapped: Future[Applied] = beside(applied, applier, table({"b": "text"}))
        wait_for_lock(connection, "autofill applier")
    assert swapped.result().created
    assert [*types(connection, collection)] == ["row_id", "batch", "b"]


def test_the_view_comes_and_goes_with_its_version(connection: Connection, opened: Opened, beside: Beside) -> None:
    collection = load(connection, applied(connection, table({"a": "text"})), {"a": "x"})
    reader = opened("reader")
    with pytest.raises(RuntimeError), connection.transaction():
        applied(connection, table({"b": "text"}))
        read: Future[Any] = beside(shown, reader, collection)
        wait_for_lock(opened("watcher"), "autofill reader")
        raise RuntimeError
    assert read.result() == [{"row_id": 1, "batch": "batch", "a": "x"}]


def test_views_of_an_older_database_are_made_by_the_refresh(connection: Connection) -> None:
    collection = load(connection, applied(connection, table({"a": "text"})), {"a": "x"})
    connection.execute("drop schema autofill_views cascade")
    assert refresh_views(connection) == ["test/sheet"]
    assert len(shown(connection, collection)) == 1


def test_what_people_built_on_a_view_keeps_working_and_so_do_their_grants(connection: Connection) -> None:
    collection = load(connection, applied(connection, table({"a": "text"})), {"a": "x"})
    role = f"reader_{connection.info.backend_pid}"
    connection.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
    try:
        connection.execute(sql.SQL("grant select on {} to {}").format(named(collection), sql.Identifier(role)))
        connection.execute(sql.SQL("grant select on {} to public").format(named(collection)))
        connection.execute("create view public.theirs as select a from autofill_views.test__sheet")
        applied(connection, table({"a": "text", "b": "text"}))
        applied(connection, table({"b": "text"}))
        assert connection.execute("select a from public.theirs").fetchall() == [("x",)]
        assert [*types(connection, collection)] == ["row_id", "batch", "b"]
        granted = connection.execute(
            "select has_table_privilege(%s, 'autofill_views.test__sheet', 'select') as granted, "
            "(select count(*) from pg_class cross join aclexplode(relacl) as acl "
            " where relname = 'test__sheet' and acl.grantee = 0) as public",
            [role],
        ).fetchone()
        assert granted == (True, 1)
    finally:
        connection.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
        connection.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


def test_two_first_collections_make_the_schema_once(connection: Connection, opened: Opened, beside: Beside) -> None:
    first, second = opened("first"), opened("second")
    one = applied(first, table({"a": "text"}, name="one"))
    two = applied(first, table({"a": "text"}, name="two"))
    connection.execute("drop schema autofill_views cascade")
    with first.transaction():
        assert replace_view(first, one.collection, load_version(first, one.collection.id))
        made: Future[bool] = beside(replace_view, second, two.collection, load_version(second, two.collection.id))
        wait_for_lock(connection, "autofill second")
    assert made.result()


@pytest.mark.parametrize("analyzed", ["never", "row", "all"])
def test_a_page_probes_and_sorts_nothing(connection: Connection, analyzed: str) -> None:
    made = applied(connection, sheet("a", *(f"b{n}: a" for n in range(9))))
    for name in ("row", "cell"):
        connection.execute(f"alter table autofill.{name} set (autovacuum_enabled = off)".encode())
    connection.execute(
        "insert into autofill.row (collection_id, row_id, batch_id, inputs) "
        "select %s, id, 1, jsonb_build_object('1', id) from generate_series(1, 30000) as id",
        [made.collection.id],
    )
    connection.execute(
        "insert into autofill.cell (collection_id, row_id, column_id, ai_value, version, computed_at) "
        "select %s, id, column_id, to_jsonb('x'::text), 1, now() "
        "from generate_series(1, 30000) as id, generate_series(2, 10) as column_id",
        [made.collection.id],
    )
    if analyzed != "never":
        connection.execute("analyze autofill.row" if analyzed == "row" else "analyze")
    for where in ("true", "row_id > 15000"):
        query = f"select * from autofill_views.test__sheet where {where} order by row_id limit 100"
        lines = [one[0] for one in connection.execute(f"explain {query}".encode())]
        slow = re.compile("Sort|Bitmap|Hash|Seq Scan on (?!batch)")
        assert not [line for line in lines if slow.search(line)], "\n".join(lines)
        assert len(connection.execute(query.encode()).fetchall()) == 100


def test_a_column_that_nobody_asks_for_costs_nothing(connection: Connection) -> None:
    applied(connection, sheet("a", "b: a", "c: a"))
    lines = [one[0] for one in connection.execute("explain select b from autofill_views.test__sheet")]
    assert sum("cell_pkey" in line for line in lines) == 1


def test_the_view_dies_of_nothing_else_either(connection: Connection) -> None:
    """A refused swap is no error; anything else is one, and takes the version with it."""
    applied(connection, table({"a": "text"}))
    connection.execute("drop view autofill_views.test__sheet")
    connection.execute("create table autofill_views.test__sheet ()")
    with pytest.raises(psycopg.errors.WrongObjectType):
        applied(connection, table({"b": "text"}))
    assert find_collection(connection, "test/sheet").version == 1
