"""All rows of a collection as its typed view shows them, streamed."""

from collections.abc import Generator
from typing import Any

from psycopg import sql
from psycopg.rows import tuple_row

from cell_engine.specs.version import Version
from cell_engine.store.database import Connection
from cell_engine.store.wide_view import wide_query

FETCH_ROWS = 2_000


def wide_rows(
    connection: Connection, collection_id: int, version: Version, rows: tuple[int, int] | None = None
) -> Generator[tuple[Any, ...], None, None]:
    """(row id, batch, one JSON value for each column of `version`), by row id, in one snapshot; None where the view is
    null, but for values that are not of their column's type. `rows`: only those from one row id to another. Memory: a
    few thousand rows.

    The snapshot is open until the last row is taken, or the iterator closed: tuples that die meanwhile stay.
    """
    query = wide_query(connection, collection_id, version, cast=lambda _: sql.SQL("value"))
    if rows is not None:
        bounds = map(sql.Literal, rows)
        query = sql.SQL("{} and row.row_id between {} and {}").format(query, *bounds)
    with connection.transaction():
        # Compiling a wide row's many subqueries takes longer than most of them run.
        connection.execute("select set_config('jit', 'off', true)")
        with connection.cursor(name="export", row_factory=tuple_row) as cursor:
            cursor.itersize = FETCH_ROWS
            cursor.execute(sql.SQL("{} order by row.row_id").format(query))
            yield from cursor
