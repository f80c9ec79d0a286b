"""The typed view of a collection: a tuple a row, a column a column of the current version, in SQL's own types.

`autofill_views.<namespace>__<collection>` is for people and their tools: pages, and filters on a few columns. A full
scan belongs to a Parquet export. No value can break it: what does not fit its column's type now (a text loaded before
the column became a date, the answer of another definition) is null, and so are errors and blocked cells.
"""

import re
from collections.abc import Callable

import psycopg
from psycopg import sql

from cell_engine.specs.version import Column, Version
from cell_engine.store.collections import Collection, list_collections, load_version
from cell_engine.store.database import Connection, run

SCHEMA = "autofill_views"
LOCK_TIMEOUT = "1s"
"""How long a swap waits for those who read the old view; whoever comes to read it meanwhile waits as long."""

_IDENTIFIER_LENGTH = 63
_SEAM = re.compile("__(?=[A-Za-z])")

# pg_input_is_valid() would do from PostgreSQL 16 on. Each pattern lets through only what the cast behind it takes.
_DATE = (
    "(?!0000)("
    "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
    "|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
)
_TIME = "([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,6})?)?"
_OFFSET = "(Z|[-+]([01][0-9]|2[0-3]):[0-5][0-9])"

# Type -> what jsonb_typeof() must say of its values (None: anything goes), and the cast. `case` alone decides what is
# evaluated: beside an `and`, a cast may be tried first, and fail.
_TEXT = ("string", "value #>> '{}'")
_CASTS: dict[str, tuple[str | None, str]] = {
    "text": _TEXT,
    "choice": _TEXT,
    "url": _TEXT,
    "file": _TEXT,
    "number": ("number", "value::numeric"),
    "integer": (
        "number",
        "case when value::numeric = trunc(value::numeric) and value::numeric between -9223372036854775808 "
        "and 9223372036854775807 then value::numeric::bigint end",
    ),
    "boolean": ("boolean", "value::boolean"),
    "date": ("string", f"case when value #>> '{{}}' ~ '^{_DATE}$' then (value #>> '{{}}')::date end"),
    # The offset is taken off by hand: ISO 8601 has some that PostgreSQL refuses, those beyond 15:59.
    "datetime": (
        "string",
        f"case when value #>> '{{}}' !~ '^{_DATE}T{_TIME}{_OFFSET}$' then null "
        "when right(value #>> '{}', 1) = 'Z' then left(value #>> '{}', -1)::timestamp at time zone 'UTC' "
        "else (left(value #>> '{}', -6)::timestamp - right(value #>> '{}', 6)::interval) at time zone 'UTC' end",
    ),
    "list": ("array", "value"),
    "json": (None, "value"),
}


def view_name(collection: Collection) -> str:
    """The view's name in its schema: "<namespace>__<collection>".

    Where that would be too long for PostgreSQL, or another collection's too (a__b + c, a + b__c), the collection's id
    ends it, behind a "~", which no name has.
    """
    plain = f"{collection.namespace}__{collection.name}"
    ending = f"~{collection.id}"
    return plain_view_name(collection.namespace, collection.name) or plain[: _IDENTIFIER_LENGTH - len(ending)] + ending


def plain_view_name(namespace: str, name: str) -> str | None:
    """The view's name where the collection's says it all; None where the name needs its id."""
    plain = f"{namespace}__{name}"
    return plain if len(plain) <= _IDENTIFIER_LENGTH and len(_SEAM.findall(plain)) == 1 else None


def replace_view(connection: Connection, collection: Collection, version: Version) -> bool:
    """Put the view of `version` in the place of the one there is, in the caller's transaction, under the collection's
    lock and as its last act: the new view is locked until the commit.

    Returns false when somebody reads the old view for longer than LOCK_TIMEOUT. It is then left as it is, and
    `refresh_views` replaces it later: an open report does not keep a version from being applied.
    """
    name = view_name(collection)
    view = sql.Identifier(SCHEMA, name)
    before = connection.execute("select current_setting('lock_timeout')").fetchone()
    assert before is not None
    try:
        with connection.transaction():
            connection.execute("select set_config('lock_timeout', %s, true)", [LOCK_TIMEOUT])
            _ensure_schema(connection)
            readers = _set_aside(connection, collection, name)
            connection.execute(
                sql.SQL("create view {} as {}").format(view, wide_query(connection, collection.id, version))
            )
            connection.execute(
                sql.SQL("comment on view {} is {}").format(
                    view, sql.Literal(f"collection {collection.id}, version {version.number}")
                )
            )
            for reader in readers:
                connection.execute(sql.SQL("grant select on {} to {}").format(view, reader))
            connection.execute("select set_config('lock_timeout', %s, true)", [before[0]])
    except psycopg.errors.LockNotAvailable:
        return False
    return True


def refresh_views(connection: Connection) -> list[str]:
    """Make the views that are missing or another version's, of whatever age; returns the collections' names."""
    stale = {one.id for one in run(connection, "views_stale")}
    refreshed = []
    for collection in list_collections(connection):
        if collection.id not in stale:
            continue
        with connection.transaction():
            run(connection, "collection_lock", collection_id=collection.id)
            if replace_view(connection, collection, load_version(connection, collection.id)):
                refreshed.append(collection.full_name)
    return refreshed


def _ensure_schema(connection: Connection) -> None:
    # Not by the migrations: code may run on an older schema than its own. Two first applies may meet here.
    if connection.execute("select to_regnamespace(%s)", [SCHEMA]).fetchone() == (None,):
        connection.execute("select pg_advisory_xact_lock(hashtext('autofill.views'))")
        connection.execute(sql.SQL("create schema if not exists {}").format(sql.Identifier(SCHEMA)))


def _set_aside(connection: Connection, collection: Collection, name: str) -> list[sql.Composable]:
    """Drop the old view, or, where somebody has built on it, rename it; returns the roles that could read it."""
    view = sql.Identifier(SCHEMA, name)
    old = connection.execute(
        "select oid, obj_description(oid, 'pg_class') as about from pg_class "
        "where relnamespace = to_regnamespace(%s) and relname = %s",
        [SCHEMA, name],
    ).fetchone()
    if old is None:
        return []
    readers = connection.execute(
        "select case when grantee <> 0 then pg_get_userbyid(grantee) end as role "
        "from pg_class cross join aclexplode(relacl) where pg_class.oid = %s "
        "and privilege_type = 'SELECT' and grantee <> relowner",
        [old.oid],
    ).fetchall()
    try:
        with connection.transaction():
            connection.execute(sql.SQL("drop view {}").format(view))
    except psycopg.errors.DependentObjectsStillExist:
        aside = f"~{collection.id}~{old.oid}"
        connection.execute(sql.SQL("alter view {} rename to {}").format(view, sql.Identifier(aside)))
        connection.execute(sql.SQL("comment on view {} is null").format(sql.Identifier(SCHEMA, aside)))
    return [sql.SQL("public") if one.role is None else sql.Identifier(one.role) for one in readers]


def wide_query(
    connection: Connection,
    collection_id: int,
    version: Version,
    cast: "Callable[[Column], sql.Composable] | None" = None,
) -> sql.Composable:
    """What the view is of: row id, batch, and each column of `version`, cast from JSON (`value`) by `cast`."""
    cast = cast or _cast
    current = {
        one.column_id: one.versions
        for one in run(connection, "view_versions", collection_id=collection_id, number=version.number)
    }
    taken = {column.name.casefold() for column in version.columns}
    # A collection's own column keeps its name; no column's starts with an underscore.
    row_id, batch = (sql.Identifier(f"_{name}" if name in taken else name) for name in ("row_id", "batch"))
    columns = [
        sql.SQL("({}) as {}").format(
            _input(column, cast(column))
            if column.kind is None
            else _computed(column, cast(column), current[column.id]),
            sql.Identifier(column.name),
        )
        for column in version.columns
    ]
    # num_nonnulls: without statistics `is null` is taken for one row in 200, and a page then sorts the collection.
    return sql.SQL(
        "select row.row_id as {row_id}, (select key from autofill.batch where batch.collection_id = row.collection_id "
        "and batch.id = row.batch_id limit 1) as {batch}, {columns} from autofill.row "
        "where row.collection_id = {collection_id} and num_nonnulls(row.deleted_at) <> 1"
    ).format(row_id=row_id, batch=batch, columns=sql.SQL(", ").join(columns), collection_id=sql.Literal(collection_id))


# Each column is a scalar subquery that probes one cell by its key. That form cannot become a join over all cells of
# the column, which stale statistics of `cell` would choose; it is not evaluated when nobody asks for the column, nor
# for rows that a sort under a limit drops; and planning costs the same for each of many columns. `limit 1` and
# `offset 0` keep the value from being worked out again at each place that its cast names it.


def _input(column: Column, cast: sql.Composable) -> sql.Composable:
    """A person's value, a blank one too, else the loaded one."""
    return sql.SQL(
        "select {cast} from (select case when cell.user_set then cell.user_value else row.inputs -> {key} end as value "
        "from (values (0)) as one left join lateral ({cell}) as cell on true offset 0) as shown"
    ).format(cast=cast, key=sql.Literal(str(column.id)), cell=_cell(column, "user_set, user_value"))


def _computed(column: Column, cast: sql.Composable, versions: list[int]) -> sql.Composable:
    """A person's value, else the answer, where it is one of the current definition."""
    return sql.SQL(
        "select {cast} from (select case when cell.user_set then cell.user_value "
        "when cell.error_class is null and ({current}) then cell.ai_value end as value "
        "from ({cell}) as cell offset 0) as shown"
    ).format(
        cast=cast,
        current=sql.SQL(" or ").join(
            sql.SQL("cell.version between {} and {}").format(sql.Literal(first), sql.Literal(last))
            for first, last in _ranges(versions)
        ),
        cell=_cell(column, "user_set, user_value, error_class, version, ai_value"),
    )


def _cell(column: Column, fields: str) -> sql.Composable:
    return sql.SQL(
        "select {fields} from autofill.cell where cell.collection_id = row.collection_id "
        "and cell.row_id = row.row_id and cell.column_id = {id} limit 1"
    ).format(fields=sql.SQL(fields), id=sql.Literal(column.id))


def _cast(column: Column) -> sql.Composable:
    kind, cast = _CASTS[column.type.name]
    typed = sql.SQL(cast)
    return typed if kind is None else sql.SQL("case when jsonb_typeof(value) = {} then {} end").format(kind, typed)


def _ranges(versions: list[int]) -> list[tuple[int, int]]:
    """Runs of consecutive numbers, of ascending ones."""
    runs: list[tuple[int, int]] = []
    for number in versions:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs
