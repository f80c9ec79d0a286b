"""R7: what a dispatch asked for by name has an outcome in it, whoever else wanted the cell meanwhile."""

from cell_engine.store.changes import edit
from cell_engine.store.claims import claim
from cell_engine.store.database import Connection
from cell_engine.store.demands import RowScope, dispatch
from cell_engine.store.reading import progress
from tests.engine import Claimer, make, sheet
from tests.store.visits import Visit, Worker


def first_visit(connection: Connection) -> Visit:
    worker = Worker(connection, connection, ["function", "llm"])
    (reading,) = claim(connection, worker.token(), worker.job_types, 1, 1, {}).visits
    return Visit(worker, reading)


def test_R7_a_dispatch_that_asked_for_a_cell_in_flight_has_its_outcome(connection: Connection) -> None:
    made = make(connection, sheet("a", "k", "b: a"), rows=[{"a": "x"}])
    b = made.id("b")
    visit = first_visit(connection)
    visit.start(visit.plan(made.version))
    asked = dispatch(connection, made.collection.id, RowScope((1,)), columns=[b], reason="reprocess", actor="me")
    edit(connection, made.collection.id, 1, {made.id("k"): "edited"}, actor="me")
    reading = visit.reread()
    assert reading is not None
    visit.take(reading)
    results = [visit.result(b, value="B", leaving=True)]
    assert visit.nothing_follows(made.version, results)
    visit.flush(results, visit.release([b]))
    done = progress(connection, asked)
    assert done is not None
    assert done.done == 1


def test_R7_a_dispatch_that_asked_for_a_cell_found_current_again_has_its_outcome(connection: Connection) -> None:
    made = make(connection, sheet("a", "b: a"), rows=[{"a": "x"}])
    claimer = Claimer(connection)
    assert claimer.work_off() == ["b"]
    edit(connection, made.collection.id, 1, {made.id("a"): "x"}, actor="me")  # the same: `b` has only to be marked
    columns = [made.id("b")]
    asked = dispatch(connection, made.collection.id, RowScope((1,)), columns=columns, reason="reprocess", actor="me")
    assert claimer.work_off() == []
    done = progress(connection, asked)
    assert done is not None
    assert done.outcomes == {"fresh": 1}
