"""What asking costs: the dispatch of a huge sweep against a small one, many at once, and an edit during a sweep."""

import random
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

from cell_engine.embedded.server import Server
from cell_engine.errors import AdmissionError
from cell_engine.store.changes import edit
from cell_engine.store.control import cancel
from cell_engine.store.database import Connection, connect
from cell_engine.store.demands import RangeScope, RowScope, dispatch
from cell_engine.store.limits import set_limits
from tests.benchmarks.bench import ROUNDS, SPAWN, Figure, Sheet, WorkSize, fill, migrated, note, sheet, workers
from tests.benchmarks.noop import EDITED

LARGE, SMALL = 1_000_000, 5_000  # rows
SWEEPS = 30  # dispatched of each size, in turns
CLIENTS, CLIENT_PROCESSES = 32, 2
EACH = 25  # dispatches a client makes
LIMIT, LIMITED, LIMITED_SECONDS = 300, 4, 3.0  # dispatches a second of a namespace, its collections, and how long
CALL_SECONDS = 0.2
EDITS, EDIT_SECONDS = 300, 0.04  # edits a round, and the time between them
MOST_IN_A_SECOND = """
select max(count) from (
    select count(*) over (order by created_at range between current row and interval '1 second' following) as count
    from autofill.dispatch where id > %s
) as seconds
"""


def figures(server: Server) -> Iterator[Figure]:
    url = migrated(server, "demands")
    with connect(url, application="benchmark") as connection:
        large, small = sheet(connection, "space", "large", 1, CALL_SECONDS), sheet(connection, "space", "small", 1)
        fill(connection, large, LARGE)
        fill(connection, small, SMALL)
        connection.execute("vacuum (analyze) autofill.row")
        note(f"{LARGE} rows are there")
        yield from _edits(connection, url, large)
        yield from _sweeps(connection, large, small)
        yield _crowd(url, large)
        limited = [sheet(connection, "limited", f"limited{number}", 1) for number in range(LIMITED)]
        for one in limited:
            fill(connection, one, SMALL)
        set_limits(connection, "limited", {"dispatches": LIMIT})
        yield from _admitted(connection, url, limited)


def _edits(connection: Connection, url: str, large: Sheet) -> Iterator[Figure]:
    """From the asking to the start of the call, which is some time after the claim. Every slot that the sweep may have
    is taken: calls take as long as a model's short ones, and the sweep is far longer than the measurement."""
    started = SPAWN.SimpleQueue()
    p50s, p99s = [], []
    with WorkSize(url) as size, workers(url, started):
        sweep = dispatch(connection, large.id, RangeScope(((1, LARGE),)), reason="reprocess", actor="benchmark")
        time.sleep(3 * CALL_SECONDS)
        for number in range(ROUNDS):
            times = _edit_round(connection, large, number, started)
            cuts = statistics.quantiles(times, n=100)
            p50s.append(cuts[49])
            p99s.append(cuts[98])
        (held,) = connection.execute("select sum(held) from autofill.slot").fetchone() or (0,)
        (cursor,) = connection.execute("select max(cursor) from autofill.sweep").fetchone() or (0,)
        cancel(connection, sweep)
    note(f"edits done; the sweep held {held} slots and had come to row {cursor}")
    more = {"p50": round(statistics.median(p50s)), "edits a run": EDITS, "slots held": int(held)}
    yield Figure("a one-cell edit during a sweep of a million, caps full, p99", p99s, "ms", 150, True, more)
    yield Figure("work, largest, during that sweep", [size.largest], "MB", 64, at_most=True)


def _edit_round(connection: Connection, large: Sheet, number: int, started: object) -> list[float]:
    asked: dict[str, float] = {}
    times: list[float] = []

    def receive() -> None:
        for _ in range(EDITS):
            value, at = started.get()  # type: ignore[attr-defined]
            times.append((at - asked[value]) * 1_000)

    receiver = threading.Thread(target=receive, daemon=True)
    receiver.start()
    rng = random.Random(number)
    for turn, row_id in enumerate(rng.sample(range(LARGE // 2, LARGE), EDITS)):
        value = f"{EDITED}{number} {turn}"
        asked[value] = time.monotonic()
        edit(connection, large.id, row_id, {large.input: value}, actor="benchmark")
        time.sleep(EDIT_SECONDS)
    receiver.join(60)
    assert len(times) == EDITS, f"only {len(times)} of {EDITS} edits were computed"
    return times


def _sweeps(connection: Connection, large: Sheet, small: Sheet) -> Iterator[Figure]:
    ratios, milliseconds = [], []
    for _ in range(ROUNDS):
        times: dict[int, list[float]] = {LARGE: [], SMALL: []}
        for _ in range(SWEEPS):
            for target, rows in ((large, LARGE), (small, SMALL)):
                began = time.monotonic()
                dispatch(connection, target.id, RangeScope(((1, rows),)), reason="reprocess", actor="benchmark")
                times[rows].append((time.monotonic() - began) * 1_000)
        milliseconds.append(statistics.median(times[LARGE]))
        ratios.append(milliseconds[-1] / statistics.median(times[SMALL]))
    yield Figure("dispatch of a sweep over 1 M rows, to 5 k rows", ratios, "ratio", 2, at_most=True)
    yield Figure("dispatch of a sweep over 1 M rows", milliseconds, "ms", 100, at_most=True)


def _crowd(url: str, large: Sheet) -> Figure:
    rates = []
    with ProcessPoolExecutor(CLIENT_PROCESSES, mp_context=SPAWN) as pool:
        for number in range(ROUNDS):
            list(pool.map(abs, range(CLIENT_PROCESSES)))
            shares = [pool.submit(_clients, url, large, number * CLIENT_PROCESSES + n) for n in range(CLIENT_PROCESSES)]
            begins, ends = zip(*(share.result() for share in shares), strict=True)
            rates.append(CLIENTS * EACH / (max(ends) - min(begins)))
    return Figure(f"{CLIENTS} concurrent dispatches of one cell", rates, "a second", 300)


def _admitted(connection: Connection, url: str, limited: Sequence[Sheet]) -> Iterator[Figure]:
    """What a namespace at its limit lets in of all that as many clients can ask; each comes back when it is told to."""
    rates, most = [], []
    with ProcessPoolExecutor(CLIENT_PROCESSES, mp_context=SPAWN) as pool:
        for _ in range(ROUNDS):
            list(pool.map(abs, range(CLIENT_PROCESSES)))
            time.sleep(1.1)  # every pass is free
            (last,) = connection.execute("select max(id) from autofill.dispatch").fetchone() or (0,)
            shares = [pool.submit(_limited, url, limited, number) for number in range(CLIENT_PROCESSES)]
            rates.append(sum(share.result() for share in shares) / LIMITED_SECONDS)
            (highest,) = connection.execute(MOST_IN_A_SECOND, [last]).fetchone() or (0,)
            most.append(float(highest))
    more = {"limit": LIMIT, "clients": CLIENTS}
    yield Figure("dispatches let in of one namespace at its limit", rates, "a second", 0.9 * LIMIT, more=more)
    # a dispatch is made some milliseconds after its pass was taken: what was let in just before the second counts too
    yield Figure("the same, most made in any second", most, "dispatches", 1.05 * LIMIT, at_most=True, more=more)


def _limited(url: str, limited: Sequence[Sheet], share: int) -> int:
    """Dispatches let in of this process's clients."""
    threads = CLIENTS // CLIENT_PROCESSES
    ready = threading.Barrier(threads)

    def client(number: int) -> int:
        target = limited[number % len(limited)]
        row_id = share * threads + number + 1
        count = 0
        with connect(url, application="benchmark client") as connection:
            connection.execute("select 1")
            ready.wait()
            over = time.monotonic() + LIMITED_SECONDS
            while time.monotonic() < over:
                try:
                    scope, columns = RowScope((row_id,)), target.computed
                    dispatch(connection, target.id, scope, columns=columns, reason="reprocess", actor="benchmark")
                    count += 1
                except AdmissionError as error:
                    time.sleep(error.seconds)
        return count

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(client, range(threads)))


def _clients(url: str, large: Sheet, share: int) -> tuple[float, float]:
    """This process's part of the clients, each on a connection and at rows of its own; when they began and ended."""
    threads = CLIENTS // CLIENT_PROCESSES
    ready = threading.Barrier(threads)

    def client(number: int) -> tuple[float, float]:
        first = (share * threads + number) * EACH
        with connect(url, application="benchmark client") as connection:
            connection.execute("select 1")
            ready.wait()
            began = time.monotonic()
            for row_id in range(first + 1, first + EACH + 1):
                scope = RowScope((row_id,))
                dispatch(connection, large.id, scope, columns=large.computed, reason="reprocess", actor="benchmark")
            return began, time.monotonic()

    with ThreadPoolExecutor(threads) as pool:
        begins, ends = zip(*pool.map(client, range(threads)), strict=True)
    return min(begins), max(ends)
