"""Progress of a dispatch: what has come of it, what is left, and about how long that will take."""

import pytest
from rich.console import Console

from cell_engine.cli.render import dispatches_table
from cell_engine.plan import plan
from cell_engine.store.control import pause
from cell_engine.store.database import Connection
from cell_engine.store.demands import RangeScope, RowScope, dispatch
from cell_engine.store.reading import Progress, progress
from tests.engine import Claimer, make, sheet

ROWS = 10


def of(connection: Connection, dispatch_id: int) -> Progress:
    found = progress(connection, dispatch_id)
    assert found is not None
    return found


def test_every_row_and_cell_of_a_dispatch_is_somewhere(connection: Connection) -> None:
    made = make(connection, sheet("a", "b: a"), rows=[{"a": f"x{row}"} for row in range(ROWS)], demand=False)
    whole, b = RangeScope(((1, ROWS),)), [made.id("b")]
    asked = dispatch(connection, made.collection.id, whole, columns=b, reason="reprocess", actor="me")
    claimer = Claimer(connection)
    fresh = of(connection, asked)
    assert (fresh.rows, fresh.done, fresh.running, fresh.queued, fresh.waiting) == (ROWS, 0, 0, ROWS, 0)
    assert fresh.eta is None
    visits = claimer.claim(slots=6)
    for visit in visits[:2]:
        claimer.visit(visit)
    claimer.visit(visits[2], lambda due: "answered")
    claimer.flush(releases=[claimer.release(visits[3], "delay", seconds=60)])
    now = of(connection, asked)
    assert (now.done, now.outcomes, now.failed) == (3, {"ready": 3}, {})
    assert (now.running, now.queued, now.waiting) == (2, ROWS - 6, 1)
    # 3 cells of 4 rows took so long, 6 rows are left, those under way half done
    assert now.recent == 3
    assert now.eta == pytest.approx(now.recent_seconds * (6 / 4))

    again = dispatch(connection, made.collection.id, RowScope((10,)), columns=b, reason="reprocess", actor="me")
    for visit in visits[4:]:
        claimer.visit(visit)
    claimer.work_off()
    assert of(connection, again).outcomes == {"ready": 1}
    forced = dispatch(connection, made.collection.id, whole, columns=b, force=True, reason="reprocess", actor="me")
    later = dispatch(connection, made.collection.id, RowScope((1, 4)), columns=b, reason="reprocess", actor="me")
    claimer.work_off()
    assert (of(connection, later).done, of(connection, asked).superseded) == (2, 2)  # rows 10 and 4
    assert of(connection, forced).saved["unchanged"] > 0
    ended = of(connection, asked)
    assert (ended.done, ended.ended_at is not None) == (ROWS, True)
    assert (ended.running, ended.queued, ended.waiting, ended.eta) == (0, 0, 0, None)


def test_the_time_left_goes_by_cells_where_all_of_them_are_known(connection: Connection) -> None:
    made = make(connection, sheet("a", "b: a", "c: a"), rows=[{"a": f"x{row}"} for row in range(ROWS)])
    claimer = Claimer(connection)
    visits = claimer.claim()
    steps = plan(visits[0].row, made.version, {})
    claimer.flush([claimer.answer(visit, made.id("b"), "B", steps) for visit in visits[:5]])
    now = of(connection, visits[0].dispatch_id)
    assert (now.running, now.total, now.done) == (ROWS, 2 * ROWS, 5)
    assert now.eta == pytest.approx(now.recent_seconds * 15 / 5)


def test_what_a_filter_leaves_out_is_not_left_undone(connection: Connection) -> None:
    made = make(connection, sheet("a", "b: a", "c: b"), rows=[{"a": f"x{row}"} for row in range(ROWS)])
    claimer = Claimer(connection)
    claimer.work_off()
    connection.execute(
        "update autofill.cell set error_class = 'schema', error = '-' where column_id = 3 and row_id < 4"
    )
    scope, columns = RangeScope(((1, ROWS),)), [made.id("b"), made.id("c")]
    asked = dispatch(
        connection, made.collection.id, scope, columns=columns, only_if=["error:schema"], reason="retry", actor="me"
    )
    now = of(connection, asked)
    assert (now.total, now.done, now.aim, now.is_bound) == (2 * ROWS, 0, 2 * ROWS, True)
    claimer.work_off()
    ended = of(connection, asked)
    assert ended.outcomes == {"ready": 3, "fresh": 3}, "of the rows that have one"
    assert (ended.total, ended.done, ended.aim, ended.is_bound) == (2 * ROWS, 6, 6, False)
    table = Console(width=200)
    with table.capture() as shown:
        table.print(dispatches_table([now, ended], made.version))
    assert "≤ 20" in shown.get()
    assert " 6 " in shown.get()


def test_cells_that_needed_no_call_are_saved(connection: Connection) -> None:
    made = make(connection, sheet("a", "b: a"), rows=[{"a": "x"}, {"a": "y"}])
    claimer = Claimer(connection)
    claimer.work_off()
    asked = dispatch(
        connection, made.collection.id, RangeScope(((1, 2),)), columns=[made.id("b")], reason="reprocess", actor="me"
    )
    claimer.work_off()
    assert of(connection, asked).saved == {"cached": 0, "fresh": 2, "unchanged": 0}


def test_what_has_stopped_has_no_end_in_sight(
    connection: Connection,
) -> None:
    made = make(connection, sheet("a", "b: a"), rows=[{"a": f"x{row}"} for row in range(ROWS)], demand=False)
    scope = RangeScope(((1, ROWS),))
    asked = dispatch(connection, made.collection.id, scope, reason="reprocess", actor="me")
    claimer = Claimer(connection)
    for visit in claimer.claim(slots=4)[:2]:
        claimer.visit(visit)
    connection.execute("update autofill.completion set completed_at = completed_at - interval '61 s'")
    assert of(connection, asked).recent == 0
    assert of(connection, asked).eta is None
    connection.execute("update autofill.completion set completed_at = clock_timestamp()")
    assert of(connection, asked).eta is not None
    pause(connection, asked)
    assert of(connection, asked).eta is None
