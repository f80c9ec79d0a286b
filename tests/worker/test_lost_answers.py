"""A commit whose answer is lost: the batch comes again, and what it brought is neither lost nor counted twice."""

from collections.abc import Sequence
from uuid import UUID

import psycopg
import pytest

from cell_engine.plan import plan
from cell_engine.store.changes import edit
from cell_engine.store.database import Connection
from cell_engine.store.demands import RowScope, dispatch
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import progress, recent_dispatches
from cell_engine.store.results import Flushed, Release, Result, end_dispatches, flush
from tests.engine import Claimer, eventually, make, running_worker, sheet, wait_for_lock
from tests.store.conftest import Beside, Opened, beside, opened

__all__ = ["beside", "opened"]

ROWS = 50


def cut(connection: Connection) -> None:
    """Ends the connection's server process: the next thing that is asked of it has no answer."""
    with psycopg.connect(connection.info.dsn, password=connection.info.password, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 5000)", [connection.info.backend_pid])


def test_calls_of_batches_whose_commit_was_not_answered_are_counted_once(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(connection, rows=[{"a": f"x{number}"} for number in range(ROWS)])
    load = recent_dispatches(connection, made.collection.id)[0].id
    tried: set[int] = set()

    def lossy(
        on: Connection, worker_id: UUID, results: Sequence[Result], releases: Sequence[Release], number: int
    ) -> Flushed:
        flushed = flush(on, worker_id, results, releases, number)
        if number not in tried:
            tried.add(number)
            cut(on)
            on.execute("select")  # as the answer to the commit would: raises OperationalError
        return flushed

    monkeypatch.setattr("cell_engine.worker.finalizer.flush", lossy)
    with running_worker(database):
        eventually(connection, "select ended_at is not null from autofill.dispatch where id = %s", load)
    found = progress(connection, load)
    assert found is not None
    assert found.outcomes == {"ready": 2 * ROWS}
    assert found.attempts == {"succeeded": 2 * ROWS}
    assert len(tried) > 1
    assert broken_rules(connection) == {}
    assert connection.execute("select count(*) from autofill.slot").fetchone() == (0,)


def test_a_batch_that_comes_again_while_its_commit_is_on_its_way_waits_for_it(
    connection: Connection, opened: Opened, beside: Beside
) -> None:
    made = make(connection, rows=[{"a": "x"}])
    claimer = Claimer(connection)
    (visit,) = claimer.claim()
    result = claimer.answer(visit, made.id("b"), "B", plan(visit.row, made.version, visit.asked))
    first, again = opened("first"), opened("again")
    with first.transaction():
        (stored,) = flush(first, claimer.id, [result], [], 1).stored
        repeated = beside(flush, again, claimer.id, [result], [], 1)
        wait_for_lock(connection, "autofill again")
    assert repeated.result().stored == [stored]
    assert stored.won
    assert stored.change > 0
    assert attempts(connection) == ["succeeded"]


@pytest.mark.parametrize("newer", [False, True], ids=["released", "kept"])
def test_a_release_that_comes_again_ends_the_visit_or_keeps_it_for_newer_demand(
    connection: Connection, newer: bool
) -> None:
    made = make(connection, sheet("a", "b: a"), rows=[{"a": "x"}])
    claimer = Claimer(connection)
    (visit,) = claimer.claim()
    steps = plan(visit.row, made.version, visit.asked)
    batch = (
        [claimer.answer(visit, made.id("b"), "B", steps, leaving=True)],
        [claimer.release(visit, answered=(made.id("b"),))],
    )
    if newer:
        edit(connection, made.collection.id, 1, {made.id("a"): "edited"}, actor="me")
    first, again = (flush(connection, claimer.id, *batch, 1) for _ in range(2))
    assert [one.won for one in again.stored] == [one.won for one in first.stored]
    assert again.released == first.released
    assert again.released[0].outcome == ("kept" if newer else "released")
    assert attempts(connection) == ["succeeded"]


def test_R7_a_row_that_newer_demand_keeps_ends_the_dispatch_whose_demand_was_met(connection: Connection) -> None:
    made = make(connection, sheet("a", "b: a"), rows=[{"a": "x"}])
    claimer = Claimer(connection)
    (visit,) = claimer.claim()
    steps = plan(visit.row, made.version, visit.asked)
    claimer.flush(
        [claimer.answer(visit, made.id("b"), "B", steps, leaving=True)],
        [claimer.release(visit, answered=(made.id("b"),))],
    )
    columns = [made.id("b")]
    asked = dispatch(
        connection, made.collection.id, RowScope((1,)), columns=columns, force=True, reason="reprocess", actor="me"
    )
    edit(connection, made.collection.id, 1, {made.id("a"): "edited"}, actor="me")
    (visit,) = claimer.claim()
    steps = plan(visit.row, made.version, visit.asked)
    edit(connection, made.collection.id, 1, {made.id("a"): "edited again"}, actor="me")
    result = claimer.answer(visit, made.id("b"), "B", steps, leaving=True)
    flushed = flush(connection, claimer.id, [result], [claimer.release(visit, answered=(made.id("b"),))])
    assert flushed.released[0].outcome == "kept"
    assert asked in flushed.dispatches
    assert end_dispatches(connection, list(flushed.dispatches)) == [asked]


def test_a_person_who_came_before_the_second_try_is_not_overlooked(connection: Connection) -> None:
    made = make(connection, rows=[{"a": "x"}])
    claimer = Claimer(connection)
    (visit,) = claimer.claim()
    result = claimer.answer(visit, made.id("b"), "B", plan(visit.row, made.version, visit.asked))
    flush(connection, claimer.id, [result], [], 1)
    edit(connection, made.collection.id, 1, {made.id("b"): "mine"}, actor="me")
    (stored,) = flush(connection, claimer.id, [result], [], 1).stored
    # no number that would make what reads the old value look as if it had read the person's
    assert (stored.won, stored.change) == (True, 0)


def attempts(connection: Connection) -> list[str]:
    return [one.outcome for one in connection.execute("select outcome from autofill.attempt order by id")]
