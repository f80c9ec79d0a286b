"""Claim→finalize with everything on, as a ratio to the bare batched UPDATE of the same values.

The cells exist already in both, so that both update: the sweep is forced, the UPDATE runs over what it has written.
"""

import random
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from cell_engine.embedded.server import Server
from cell_engine.store.database import Connection, connect
from cell_engine.store.demands import RangeScope, dispatch
from tests.benchmarks.bench import (
    ROUNDS,
    SPAWN,
    WORKERS,
    Figure,
    Sheet,
    WorkSize,
    fill,
    migrated,
    note,
    sheet,
    wait_for_end,
    workers,
)
from tests.benchmarks.noop import texts

COLLECTIONS, NAMESPACES = 16, 4
BATCH = 500
# Of each collection: so long that the polls (0.1 s) which a sweep begins and ends with hardly tell.
SINGLE_ROWS, CHAIN_ROWS = 4_000, 2_000
CHAIN = 4
UPDATE = """update autofill.cell set ai_value = given.value
from unnest(%s::bigint[], %s::jsonb[]) as given (row_id, value)
where cell.collection_id = %s and cell.row_id = given.row_id and cell.column_id = %s"""


def figures(server: Server) -> Iterator[Figure]:
    url = migrated(server, "throughput")
    bare, single, chain = [], [], []
    with connect(url, application="benchmark") as connection:
        sheets = {columns: _sheets(connection, columns) for columns in (1, CHAIN)}
        for columns, rows in ((1, SINGLE_ROWS), (CHAIN, CHAIN_ROWS)):
            for one in sheets[columns]:
                fill(connection, one, rows)
        connection.execute("vacuum (analyze) autofill.row")
        with (
            WorkSize(url) as size,
            ProcessPoolExecutor(WORKERS, mp_context=SPAWN) as pool,
            workers(url),
        ):
            first = _sweep(connection, sheets[1], SINGLE_ROWS, force=False)
            first_chain = _sweep(connection, sheets[CHAIN], CHAIN_ROWS, force=False)
            note(f"first sweeps: {first:.0f} and {first_chain:.0f} cells/s")
            list(pool.map(abs, range(WORKERS)))  # both processes are up before the clock starts
            for _ in range(ROUNDS):
                bare.append(_update(connection, pool, url, sheets[1]))
                single.append(_sweep(connection, sheets[1], SINGLE_ROWS, force=True))
                chain.append(_sweep(connection, sheets[CHAIN], CHAIN_ROWS, force=True))
                note(f"update {bare[-1]:.0f}, one column {single[-1]:.0f}, chain {chain[-1]:.0f} cells/s")
    floor = {"bare update, cells/s": round(statistics.median(bare))}
    for name, runs, first_run, target in (
        ("claim to finalize, one column, to the bare update", single, first, 0.15),
        (f"claim to finalize, a chain of {CHAIN}, to the bare update", chain, first_chain, 0.25),
    ):
        ratios = [run / update for run, update in zip(runs, bare, strict=True)]
        rates = {"cells/s": round(statistics.median(runs)), "first sweep, cells/s": round(first_run)}
        yield Figure(name, ratios, "ratio", target, more=rates | floor)
    yield Figure("work, largest, full speed", [size.largest], "MB", 64, at_most=True)


def _sheets(connection: Connection, columns: int) -> list[Sheet]:
    return [
        sheet(connection, f"space{number % NAMESPACES}", f"width{columns}_{number}", columns)
        for number in range(COLLECTIONS)
    ]


def _sweep(connection: Connection, sheets: list[Sheet], rows: int, force: bool) -> float:
    """Cells a second, from the dispatch to the end of the last. The chain's later columns come by cascade."""
    connection.execute("checkpoint")
    started = time.monotonic()
    dispatches = [
        dispatch(
            connection,
            one.id,
            RangeScope(((1, rows),)),
            columns=one.computed[:1] if force else (),
            force=force,
            reason="reprocess",
            actor="benchmark",
        )
        for one in sheets
    ]
    wait_for_end(connection, dispatches)
    return sum(rows * len(one.computed) for one in sheets) / (time.monotonic() - started)


def _update(connection: Connection, pool: ProcessPoolExecutor, url: str, sheets: list[Sheet]) -> float:
    connection.execute("checkpoint")
    shares = [[(one.id, one.computed[0]) for one in sheets[number::WORKERS]] for number in range(WORKERS)]
    spans = [done.result() for done in [pool.submit(_update_share, url, share) for share in shares]]
    begins, ends = zip(*spans, strict=True)
    seconds: float = max(ends) - min(begins)
    return COLLECTIONS * SINGLE_ROWS / seconds


def _update_share(url: str, columns: list[tuple[int, int]]) -> tuple[float, float]:
    # As JSON texts, made beforehand: how fast Python makes them is not the server's floor.
    values = [f'"{text}"' for text in texts()]
    random.shuffle(values)
    with connect(url, application="benchmark update") as connection:
        began = time.monotonic()
        for collection_id, column_id in columns:
            for first in range(1, SINGLE_ROWS + 1, BATCH):
                batch = values[first % BATCH : first % BATCH + BATCH]
                rows = list(range(first, first + BATCH))
                done = connection.execute(UPDATE, (rows, batch, collection_id, column_id), prepare=True)
                assert done.rowcount == BATCH
        return began, time.monotonic()
