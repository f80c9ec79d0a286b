"""How the queue bears size: a thousand lanes, millions of rows, a slow lane behind a fast one, a snapshot held open.

Of a sweep over millions only the rate is measured, in a window; then it is canceled.
"""

import time
from collections.abc import Iterator, Sequence

from cell_engine.embedded.server import Server
from cell_engine.store.control import cancel
from cell_engine.store.database import Connection, connect
from cell_engine.store.reading import progress
from tests.benchmarks.bench import (
    ROUNDS,
    Figure,
    Sheet,
    WorkSize,
    fill,
    migrated,
    note,
    sheet,
    sweep,
    wait_for_end,
    workers,
)
from tests.benchmarks.noop import JOB_TYPE, SLOW_JOB_TYPE

LANES, FEW = 1_000, 16
ROWS = 64_000  # of all lanes together
HUGE, LARGE = 5_000_000, 100_000  # rows
CAP = 1_000
WINDOW = 6.0  # seconds
SLOW_SECONDS = 0.2
HELD_SECONDS, SETTLED_SECONDS = 60.0, 10.0


def figures(server: Server) -> Iterator[Figure]:
    yield _lanes(migrated(server, "lanes"))
    url = migrated(server, "rows")
    with connect(url, application="benchmark") as connection:
        huge, large = sheet(connection, "space", "huge", 1), sheet(connection, "space", "large", 1)
        slow = sheet(connection, "space", "slow", 2, SLOW_SECONDS, last=SLOW_JOB_TYPE)
        for target, rows in ((huge, HUGE), (large, LARGE), (slow, LARGE)):
            connection.execute("update autofill.collection set cap = %s where id = %s", [CAP, target.id])
            fill(connection, target, rows)
        connection.execute("vacuum (analyze) autofill.row")
        note(f"{HUGE} rows are there")
        yield from _rows(connection, url, huge, large)
        yield _behind(connection, url, slow)
        yield from _held(connection, url, huge)


def _lanes(url: str) -> Figure:
    """A thousand collections with something to do, against sixteen with as many rows in all."""
    with connect(url, application="benchmark") as connection:
        many, few = (
            [sheet(connection, f"space{number % 4}", f"lanes{lanes}_{number}", 1) for number in range(lanes)]
            for lanes in (LANES, FEW)
        )
        for sheets in (many, few):
            for one in sheets:
                fill(connection, one, ROWS // len(sheets))
        connection.execute("vacuum (analyze) autofill.row")
        note(f"{LANES} lanes are there")
        ratios = []
        with workers(url):
            for sheets in (few, many):  # the workers have read every version once
                _sweep(connection, sheets)
            for _ in range(ROUNDS):
                rates = [_sweep(connection, sheets) for sheets in (few, many)]
                ratios.append(rates[1] / rates[0])
                note(f"{FEW} lanes {rates[0]:.0f}, {LANES} lanes {rates[1]:.0f} cells/s")
    return Figure(f"{LANES} active lanes, to {FEW}", ratios, "ratio", 0.7)


def _sweep(connection: Connection, sheets: Sequence[Sheet]) -> float:
    """Cells a second, from when all are asked for to the end of the last."""
    asked = [sweep(connection, one, ROWS // len(sheets)) for one in sheets]
    began = time.monotonic()
    done = connection.execute(
        "select coalesce(sum(cardinality(row_ids)), 0) from autofill.completion where dispatch_id = any(%s)", [asked]
    ).fetchone()
    assert done is not None
    wait_for_end(connection, asked)
    return (ROWS - int(done[0])) / (time.monotonic() - began)


def _rows(connection: Connection, url: str, huge: Sheet, large: Sheet) -> Iterator[Figure]:
    ratios = []
    with workers(url), WorkSize(url) as size:
        for _ in range(ROUNDS):
            rates = []
            for target, rows in ((large, LARGE), (huge, HUGE)):
                asked = sweep(connection, target, rows)
                time.sleep(0.5)
                rates.append(_rate(connection, asked, WINDOW))
                _end(connection, asked)
            ratios.append(rates[1] / rates[0])
            note(f"{LARGE} rows {rates[0]:.0f}, {HUGE} rows {rates[1]:.0f} cells/s")
    yield Figure("a sweep of 5 M cells, to one of 100 k", ratios, "ratio", 0.9)
    yield Figure("work, largest, during those", [size.largest], "MB", 64, at_most=True)


def _behind(connection: Connection, url: str, slow: Sheet) -> Figure:
    """A column of a pool that is far slower than the one before it."""
    with workers(url, pools=(JOB_TYPE, SLOW_JOB_TYPE)), WorkSize(url) as size:
        asked = sweep(connection, slow, LARGE)
        time.sleep(3 * WINDOW)
        _end(connection, asked)
    return Figure("work, largest, a fast column before a slow one", [size.largest], "MB", 64, at_most=True)


def _held(connection: Connection, url: str, huge: Sheet) -> Iterator[Figure]:
    """Someone's idle transaction keeps every dead tuple of `work` where claims have to pass it. One run: it is long."""
    with workers(url), connect(url, application="benchmark snapshot") as other:
        asked = sweep(connection, huge, HUGE)
        time.sleep(0.5)
        before = _rate(connection, asked, SETTLED_SECONDS)
        other.execute("set idle_in_transaction_session_timeout = 0")
        other.execute("begin isolation level repeatable read")
        other.execute("select count(*) from autofill.collection")
        held = _rate(connection, asked, HELD_SECONDS)
        other.execute("commit")
        time.sleep(SETTLED_SECONDS)
        after = _rate(connection, asked, SETTLED_SECONDS)
        _end(connection, asked)
    note(f"before {before:.0f}, snapshot held {held:.0f}, after {after:.0f} cells/s")
    yield Figure("throughput while a snapshot is held for a minute, to before", [held / before], "ratio", 0.5)
    yield Figure("throughput ten seconds after that, to before", [after / before], "ratio", 0.9)


def _rate(connection: Connection, dispatch_id: int, seconds: float) -> float:
    """Cells a second during so many seconds of a sweep that goes on."""
    done = []
    for pause in (seconds, 0.0):
        found = progress(connection, dispatch_id)
        assert found is not None
        assert found.ended_at is None, "the sweep was over before its measurement"
        done.append((sum(found.outcomes.values()), time.monotonic()))
        time.sleep(pause)
    (first, began), (last, ended) = done
    return (last - first) / (ended - began)


def _end(connection: Connection, dispatch_id: int) -> None:
    cancel(connection, dispatch_id)
    wait_for_end(connection, [dispatch_id])
