"""What people wait for in a table of a million rows: a filter that matches five, and a page of the typed view."""

import time
from collections.abc import Iterator

from psycopg import sql

from cell_engine.embedded.server import Server
from cell_engine.store.database import Connection, connect
from cell_engine.store.demands import RangeScope, dispatch
from cell_engine.store.wide_view import refresh_views
from tests.benchmarks.bench import ROUNDS, Figure, Sheet, fill, migrated, note, sheet, wait_for_end, workers

ROWS, COMPUTED, INPUTS = 1_000_000, 9, 1
MATCHES = 5
PAGE, PAGES = 100, 50


def figures(server: Server) -> Iterator[Figure]:
    url = migrated(server, "sizes")
    with connect(url, application="benchmark") as connection:
        wide, narrow = sheet(connection, "space", "wide", COMPUTED), sheet(connection, "space", "narrow", 1)
        for target in (wide, narrow):
            fill(connection, target, ROWS)
            _compute(connection, target)
        connection.execute("vacuum (analyze) autofill.row")
        connection.execute("vacuum (analyze) autofill.cell")
        note(f"{ROWS} × {COMPUTED + INPUTS} cells are there")
        yield _filter(connection, url, narrow)
        yield _page(connection)


def _compute(connection: Connection, target: Sheet) -> None:
    """Cells as answers leave them; made by the server, because that is measured elsewhere."""
    for column_id in target.computed:
        connection.execute(
            """insert into autofill.cell (collection_id, row_id, column_id, ai_value, fingerprint, called, version,
                computed_at)
            select %s, n, %s, to_jsonb('answer ' || n), '1234567890123456', 1, 1, clock_timestamp()
            from generate_series(1, %s) as n""",
            [target.id, column_id, ROWS],
        )


def _filter(connection: Connection, url: str, target: Sheet) -> Figure:
    """Outdated, which no index knows: the whole collection is examined."""
    times = []
    with workers(url):
        for _ in range(ROUNDS):
            connection.execute(
                "update autofill.row set change = nextval('autofill.signal') "
                "where collection_id = %s and mod(row_id, %s) = 7",
                [target.id, ROWS // MATCHES],
            )
            began = time.monotonic()
            asked = dispatch(
                connection,
                target.id,
                RangeScope(((1, ROWS),)),
                columns=target.computed[:1],
                only_if=("outdated",),
                reason="reprocess",
                actor="benchmark",
            )
            wait_for_end(connection, [asked])
            times.append(time.monotonic() - began)
            done = connection.execute(
                "select sum(cardinality(row_ids)) from autofill.completion where dispatch_id = %s and column_id = %s",
                [asked, target.computed[0]],
            ).fetchone()
            assert done == (MATCHES,), f"{done} cells instead of {MATCHES}"
    return Figure(f"a filter that matches {MATCHES} cells of a million", times, "s", 3, at_most=True)


def _page(connection: Connection) -> Figure:
    refresh_views(connection)
    view = sql.Identifier("autofill_views", "space__wide")
    query = sql.SQL("select * from {} where row_id > {} order by row_id limit {}")
    times = []
    for number in range(PAGES):
        after = sql.Literal(number * (ROWS // PAGES))
        began = time.monotonic()
        found = connection.execute(query.format(view, after, sql.Literal(PAGE))).fetchall()
        times.append((time.monotonic() - began) * 1_000)
        assert len(found) == PAGE
        assert len(found[0]) > COMPUTED
    return Figure(
        f"a page of {PAGE} rows of the typed view of 1 M × {COMPUTED + INPUTS}", times, "ms", 20, at_most=True
    )
