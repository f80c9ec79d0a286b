"""Whether the small wait for the large: in virtual time with the code that shares out, and with real workers."""

import time
from collections.abc import Iterator, Sequence

from cell_engine.embedded.server import Server
from cell_engine.store.database import Connection, connect
from cell_engine.store.demands import RangeScope, dispatch
from cell_engine.store.limits import set_limits
from tests.benchmarks.bench import ROUNDS, Figure, Sheet, fill, migrated, note, sheet, wait_for_end, workers
from tests.benchmarks.noop import JOB_TYPE
from tests.benchmarks.simulation import Scene, jain, percentile, simulate

SCENE = Scene(huge=1_000_000, small=1_000, cells=10, workers=200, per_worker=3, slots=10, edits=20.0)

WORKERS, CAP, CALL_SECONDS = 3, 60, 1.0
HUGE, SMALL, CELLS = 100_000, 30, 10


def figures(server: Server) -> Iterator[Figure]:
    yield from _simulated()
    yield from _real(migrated(server, "fair"))


def _simulated() -> Iterator[Figure]:
    began = time.monotonic()
    seen = simulate(SCENE)
    note(f"{len(seen.waits)} namespaces of {SCENE.cells} cells simulated in {time.monotonic() - began:.0f} s")
    name = f"simulated, {SCENE.small} namespaces of {SCENE.cells} cells beside one of {SCENE.huge}:"
    more = {"p99, s": round(seen.p99, 2), "worst, s": round(seen.worst, 2), "equal parts would take, s": seen.level}
    yield Figure(
        f"{name} the worst wait of a small one, to equal parts", [seen.worst / seen.level], "ratio", 1.25, True, more
    )
    yield Figure(f"{name} Jain's index of the small ones", [seen.jain], "index", 0.95)
    yield Figure(f"{name} most calls in any second", [seen.most_in_a_second], "calls", seen.limit, True)
    yield Figure(f"{name} utilisation of the provider's limit", [seen.utilisation], "ratio", 0.95)
    edits = {"p99, s": round(percentile(seen.edit_waits, 0.99), 2), "edits": len(seen.edit_waits)}
    yield Figure(
        f"{name} the worst wait of an edit, to equal parts",
        [max(seen.edit_waits) / seen.level],
        "ratio",
        0.5,
        True,
        edits,
    )


def _real(url: str) -> Iterator[Figure]:
    """A cap on everything that three workers keep full; the huge sweep has it to itself when the small ones come."""
    worst, evenness, used = [], [], []
    with connect(url, application="benchmark") as connection:
        huge = sheet(connection, "huge", "one", 1, CALL_SECONDS)
        small = [sheet(connection, f"small{number}", "one", 1, CALL_SECONDS) for number in range(SMALL)]
        fill(connection, huge, HUGE)
        for one in small:
            fill(connection, one, CELLS)
        set_limits(connection, "huge/one", {"cap": CAP})
        set_limits(connection, None, {"cap": CAP})
        with workers(url, pools=(JOB_TYPE,) * WORKERS):
            _sweep(connection, huge, HUGE)
            time.sleep(4 * CALL_SECONDS)
            for _ in range(ROUNDS):
                waits, share = _round(connection, small)
                worst.append(max(waits) / (CELLS * (SMALL + 1) / (CAP / CALL_SECONDS)))
                evenness.append(jain([1 / wait for wait in waits]))
                used.append(share)
                note(f"small ones waited {min(waits):.1f} to {max(waits):.1f} s; {share:.2f} of the slots made calls")
    name = f"{WORKERS} workers, {SMALL} namespaces of {CELLS} cells beside one of {HUGE}:"
    yield Figure(f"{name} the worst wait of a small one, to equal parts", worst, "ratio", 1.5, at_most=True)
    yield Figure(f"{name} Jain's index of the small ones", evenness, "index", 0.95)
    yield Figure(f"{name} calls made, to what the cap allows", used, "ratio", 0.8)


def _round(connection: Connection, small: Sequence[Sheet]) -> tuple[list[float], float]:
    """Seconds to the end of each small one, and how much of the cap was used meanwhile."""
    with connection.transaction():  # so that all are there at once
        asked = [_sweep(connection, one, CELLS) for one in small]
    before, began = _done(connection), time.monotonic()
    wait_for_end(connection, asked)
    share = (_done(connection) - before) / ((time.monotonic() - began) * CAP / CALL_SECONDS)
    query = """
        select extract(epoch from ended_at - max(created_at) over ())::float8 as waited
        from autofill.dispatch where id = any(%s)"""
    return [one.waited for one in connection.execute(query, [asked])], share


def _done(connection: Connection) -> int:
    (cells,) = connection.execute(
        "select coalesce(sum(cardinality(row_ids)), 0) from autofill.completion"
    ).fetchone() or (0,)
    return int(cells)


def _sweep(connection: Connection, target: Sheet, rows: int) -> int:
    scope = RangeScope(((1, rows),))
    return dispatch(
        connection, target.id, scope, columns=target.computed, force=True, reason="reprocess", actor="benchmark"
    )
