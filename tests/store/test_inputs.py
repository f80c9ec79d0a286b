"""Mechanic 17: inputs that are missing, in error, or come later."""

from cell_engine.plan import plan
from cell_engine.store.changes import edit
from cell_engine.store.database import Connection
from cell_engine.store.demands import RowScope, dispatch
from cell_engine.store.reading import page, progress
from tests.engine import Claimer, make, sheet


def test_R10_an_input_that_shows_no_value_before_and_after_leaves_its_dependents_ready(connection: Connection) -> None:
    made = make(connection, sheet("k", "a", "b: a", "c: k b?"), rows=[{"k": "x"}])
    claimer = Claimer(connection)
    assert claimer.work_off() == ["c"]
    edit(connection, made.collection.id, 1, {made.id("a"): "now it is there"}, actor="me")
    (visit,) = claimer.claim()
    steps = plan(visit.row, made.version, visit.asked)
    failed = claimer.answer(visit, made.id("b"), None, steps, error_class="function_error", error="no", leaving=True)
    # The worker releases in the same transaction when its plan with these answers has nothing to call.
    claimer.flush([failed], [claimer.release(visit, answered=(made.id("b"),))])
    _, cells = page(connection, made.collection.id)
    assert [(cell.column_id, cell.status) for cell in cells] == [(made.id("b"), "error"), (made.id("c"), "ready")]


def test_mechanic_17_what_was_asked_of_a_deleted_row_ends_as_deleted(connection: Connection) -> None:
    made = make(connection, sheet("a", "n/never: a"), rows=[{"a": "x"}], demand=False)
    asked = dispatch(connection, made.collection.id, RowScope((1,)), columns=[made.id("n")], reason="one", actor="me")
    connection.execute("update autofill.row set deleted_at = now()")
    assert Claimer(connection).work_off() == []
    done = progress(connection, asked)
    assert done is not None
    assert done.ended_at is not None
    assert done.outcomes == {"deleted": 1}
