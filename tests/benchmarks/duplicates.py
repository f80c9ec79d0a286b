"""Rows that ask for the same: the calls that are made for them, and how fast the others take their answers.

`python -m tests.benchmarks.duplicates ROWS` is the same over as many rows as told, once.
"""

import sys
import time
from collections.abc import Iterator

from cell_engine.embedded.server import Server
from cell_engine.store.database import Connection, connect
from cell_engine.store.reading import progress
from tests.benchmarks.bench import (
    ROUNDS,
    Figure,
    WorkSize,
    fill,
    migrated,
    note,
    own_server,
    sheet,
    sweep,
    wait_for_end,
    workers,
)

ROWS = 50_000
DISTINCT = 3
CALL_SECONDS = 1.0


def figures(server: Server, rows: int = ROWS, rounds: int = ROUNDS) -> Iterator[Figure]:
    url = migrated(server, "duplicates")
    calls, rates, ratios = [], [], []
    with connect(url, application="benchmark") as connection, workers(url), WorkSize(url) as size:
        for number in range(rounds):
            cached, plain = (_round(connection, number, rows, cache=cache) for cache in (True, False))
            calls.append(cached[0])
            rates.append(cached[1])
            ratios.append(cached[1] / plain[1])
            note(f"{rows} rows: {cached[0]} calls, {cached[1]:.0f} cells/s, without cache {plain[1]:.0f}")
    yield Figure(f"calls for {rows} rows of {DISTINCT} distinct inputs", calls, "calls", DISTINCT, at_most=True)
    yield Figure("cells that take an answer from the cache, a second", rates, "a second", 1_000)
    yield Figure("the same, to cells that are computed at no cost", ratios, "ratio", 0.5)
    yield Figure("work, largest, during those", [size.largest], "MB", 64, at_most=True)


def _round(connection: Connection, number: int, rows: int, *, cache: bool) -> tuple[int, float]:
    """Calls made, and cells a second in all. With the cache, the calls take their time before all else."""
    seconds = CALL_SECONDS if cache else 0.0
    target = sheet(connection, f"space{number}", f"cache_{cache}", 1, seconds, cache=cache)
    fill(connection, target, rows, distinct=DISTINCT)
    connection.execute("vacuum (analyze) autofill.row")
    began = time.monotonic()
    asked = sweep(connection, target, rows)
    wait_for_end(connection, [asked], 3600)
    took = time.monotonic() - began - seconds
    done = progress(connection, asked)
    assert done is not None
    assert done.done == rows
    return sum(done.attempts.values()), rows / took


if __name__ == "__main__":
    with own_server() as server:
        for figure in figures(server, int(sys.argv[1]), 1):
            figure.print()
