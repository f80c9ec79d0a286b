"""The small are not kept waiting by the large, with real workers."""

from contextlib import ExitStack

from cell_engine.store.database import Connection
from cell_engine.store.demands import RangeScope, dispatch
from cell_engine.store.limits import set_limits
from tests.engine import Made, eventually, make, running_worker, sheet

HUGE, SMALL, ROWS = 4_000, 6, 10


def collection(connection: Connection, namespace: str, rows: int) -> Made:
    spec = sheet("a", "b: a").replace("namespace: test", f"namespace: {namespace}")
    return make(connection, spec, rows=[{"a": "x"}] * rows, demand=False)


def done(connection: Connection, dispatch_id: int) -> int:
    (cells,) = connection.execute(
        "select coalesce(sum(cardinality(row_ids)), 0) from autofill.completion where dispatch_id = %s", [dispatch_id]
    ).fetchone() or (0,)
    return int(cells)


def test_small_sweeps_end_long_before_a_huge_one_that_was_there_first(connection: Connection, database: str) -> None:
    """Three workers below one cap: whoever asks gets an equal part, though the huge one holds all of it by then."""
    huge = collection(connection, "huge", HUGE)
    small = [collection(connection, f"small{number}", ROWS) for number in range(SMALL)]
    set_limits(connection, None, {"cap": 12})

    def sweep(made: Made, rows: int) -> int:
        return dispatch(connection, made.collection.id, RangeScope(((1, rows),)), reason="reprocess", actor="me")

    first = sweep(huge, HUGE)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(running_worker(database, slots=10))
        eventually(connection, "select exists (select from autofill.completion)")
        before = done(connection, first)
        asked = [sweep(one, ROWS) for one in small]
        eventually(connection, "select bool_and(ended_at is not null) from autofill.dispatch where id = any(%s)", asked)
        meanwhile = done(connection, first) - before
        # Not how long it took: of an equal part it is 10, and all of it would be 4,000.
        assert meanwhile < HUGE / 4
        assert before + meanwhile < HUGE
