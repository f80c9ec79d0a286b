"""The real worker on the real queue: cells fill, edits ripple, failures are classed, stops hand back."""

import asyncio

import pytest

from cell_engine.store.changes import edit
from cell_engine.store.database import Connection
from cell_engine.store.demands import RowScope, dispatch
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import page, progress, recent_dispatches, status_counts
from cell_engine.worker import run_worker
from cell_engine.worker.loop import Worker
from tests.engine import eventually, make, running_worker

ENDED = "select ended_at is not null from autofill.dispatch where id = %s"


def test_rows_fill_and_an_edit_recomputes_exactly_its_dependents(connection: Connection, database: str) -> None:
    made = make(connection, rows=[{"a": f"x{number}"} for number in range(1000)] + [{}])
    load = recent_dispatches(connection, made.collection.id)[0].id
    with running_worker(database):
        eventually(connection, ENDED, load)
        filled = progress(connection, load)
        assert filled is not None
        assert filled.outcomes == {"ready": 2000, "blocked": 2}
        assert filled.attempts == {"succeeded": 2000}
        edited = edit(connection, made.collection.id, 7, {made.id("a"): "new"}, actor="me")
        eventually(connection, ENDED, edited)
    done = progress(connection, edited)
    assert done is not None
    assert done.outcomes == {"ready": 2}
    _, cells = page(connection, made.collection.id, after=6, limit=1)
    assert [(cell.value, cell.status) for cell in cells] == [("NEW", "ready"), ("NEW", "ready")]
    assert status_counts(connection, made.collection.id) == {
        made.id("b"): {"ready": 1000, "blocked": 1},
        made.id("c"): {"ready": 1000, "blocked": 1},
    }
    assert broken_rules(connection) == {}
    assert connection.execute("select count(*) from autofill.work").fetchone() == (0,)
    # the worker gave back its slots when it stopped
    assert connection.execute("select count(*) from autofill.slot").fetchone() == (0,)


def test_failures_are_the_cells_own(connection: Connection, database: str) -> None:
    spec = """
namespace: test
name: failing
columns:
  - {name: a, type: text}
  - {name: bad, type: text, kind: function, deps: [a], function: {name: "tests.functions:boom"}}
  - {name: after, type: text, kind: function, deps: [bad], function: {name: "tests.functions:shape_1"}}
  - {name: good, type: integer, kind: function, deps: [a], function: {name: "tests.functions:length"}}
"""
    made = make(connection, spec, rows=[{"a": "x"}])
    load = recent_dispatches(connection, made.collection.id)[0].id
    with running_worker(database):
        eventually(connection, ENDED, load)
    _, cells = page(connection, made.collection.id)
    assert [(cell.status, cell.error_class) for cell in cells] == [
        ("error", "function_error"),
        ("blocked", "blocked"),
        ("ready", None),
    ]
    assert "cannot do" in str(cells[0].error)
    assert broken_rules(connection) == {}


def test_an_edit_does_not_wait_for_a_slow_call_of_another_column(connection: Connection, database: str) -> None:
    spec = """
namespace: test
name: slow
columns:
  - {name: a, type: text}
  - {name: n, type: text}
  - {name: slow, type: text, kind: function, deps: [a], function: {name: "tests.functions:held"}}
  - {name: quick, type: text, kind: function, deps: [n], function: {name: "tests.functions:upper_n"}}
"""
    made = make(connection, spec, rows=[{"a": "x", "n": "y"}])
    from tests import functions

    functions.HOLD.clear()
    with running_worker(database):
        eventually(connection, "select computing is not null from autofill.work")
        edit(connection, made.collection.id, 1, {made.id("n"): "edited"}, actor="me")
        eventually(
            connection,
            "select exists (select from autofill.cell where column_id = %s and ai_value = '\"EDITED\"')",
            made.id("quick"),
        )
        in_flight = connection.execute("select computing from autofill.work").fetchone()
        assert in_flight is not None
        assert made.id("slow") in in_flight[0]
        functions.HOLD.set()
        eventually(connection, "select not exists (select from autofill.work)")
    assert broken_rules(connection) == {}


def test_nothing_follows_from_an_answer_that_is_dropped_because_its_row_was_deleted(
    connection: Connection, database: str
) -> None:
    from tests import functions

    spec = """
namespace: test
name: deleted
columns:
  - {name: a, type: text}
  - {name: slow, type: text, kind: function, deps: [a], function: {name: "tests.functions:held"}}
  - {name: after, type: text, kind: function, deps: [slow], function: {name: "tests.functions:shape_1"}}
"""
    made = make(connection, spec, rows=[{"a": "x"}])
    load = recent_dispatches(connection, made.collection.id)[0].id
    functions.HOLD.clear()
    with running_worker(database):
        eventually(connection, "select computing is not null from autofill.work")
        connection.execute("update autofill.row set deleted_at = clock_timestamp()")
        functions.HOLD.set()
        eventually(connection, ENDED, load)
    done = progress(connection, load)
    assert done is not None
    assert (done.outcomes, done.attempts) == ({"deleted": 1}, {"succeeded": 1})


def test_a_stopping_worker_hands_back_and_the_next_one_goes_on(connection: Connection, database: str) -> None:
    from tests import functions

    spec = """
namespace: test
name: stopping
columns:
  - {name: a, type: text}
  - {name: slow, type: text, kind: function, deps: [a], timeout: 600, function: {name: "tests.functions:held"}}
"""
    made = make(connection, spec, rows=[{"a": f"x{number}"} for number in range(5)])
    load = recent_dispatches(connection, made.collection.id)[0].id
    functions.HOLD.clear()
    with running_worker(database, grace=0.1):
        eventually(connection, "select count(*) = 5 from autofill.work where computing is not null")
    assert connection.execute("select state, attempts from autofill.work").fetchall() == [("queued", {})] * 5
    assert connection.execute("select count(*) from autofill.slot").fetchone() == (0,)
    functions.HOLD.set()
    with running_worker(database):
        eventually(connection, ENDED, load)
    done = progress(connection, load)
    assert done is not None
    assert done.outcomes == {"ready": 5}
    assert done.attempts == {"interrupted": 5, "succeeded": 5}


def test_reprocess_by_force_calls_again_and_without_leaves_fresh_cells(connection: Connection, database: str) -> None:
    made = make(connection, rows=[{"a": "x"}])
    with running_worker(database):
        eventually(connection, "select count(*) = 2 from autofill.cell")
        eventually(connection, "select not exists (select from autofill.work)")
        columns = [made.id("b")]
        again = dispatch(
            connection, made.collection.id, RowScope((1,)), columns=columns, reason="reprocess", actor="me"
        )
        eventually(connection, ENDED, again)
        forced = dispatch(
            connection, made.collection.id, RowScope((1,)), columns=columns, force=True, reason="reprocess", actor="me"
        )
        eventually(connection, ENDED, forced)
    first, second = progress(connection, again), progress(connection, forced)
    assert first is not None
    assert second is not None
    assert (first.outcomes, first.attempts) == ({"fresh": 1}, {})
    assert (second.outcomes, second.attempts) == ({"unchanged": 1}, {"succeeded": 1})


def test_a_worker_whose_loop_breaks_hands_back_and_ends(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: Worker) -> None:
        await asyncio.sleep(0)
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(Worker, "_news_loop", broken)
    with pytest.raises(RuntimeError, match="broken on purpose"):
        asyncio.run(run_worker(database, stop=asyncio.Event()))
    assert connection.execute("select count(*) from autofill.worker where ended_at is null").fetchone() == (0,)
