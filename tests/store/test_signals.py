"""R6 and mechanics 1-3: no signal is lost, in whatever order demand, visits and releases meet."""

from cell_engine.plan import Cell, plan
from cell_engine.store.changes import edit
from cell_engine.store.claims import read
from cell_engine.store.database import Connection
from cell_engine.store.demands import RangeScope, RowScope, dispatch
from cell_engine.store.reading import progress, status_counts
from tests.engine import Claimer, make, sheet, wait_or_lock
from tests.store.conftest import Beside, Opened

BESIDE = sheet("a", "b: a", "n/never: a")


def test_R6_an_older_sweep_that_meets_a_visit_in_flight_outlives_its_release(connection: Connection) -> None:
    made = make(connection, BESIDE, rows=[{"a": "x"}], demand=False)
    older = dispatch(
        connection, made.collection.id, RangeScope(((1, 1),)), columns=[made.id("n")], reason="reprocess", actor="me"
    )
    edit(connection, made.collection.id, 1, {made.id("a"): "edited"}, actor="me")
    claimer, other = Claimer(connection), Claimer(connection)
    (visit,) = claimer.claim(slots=1)
    steps = plan(visit.row, made.version, visit.asked)
    assert other.claim() == []  # the sweep comes to the row, and finds it in flight
    released = claimer.flush(
        [claimer.answer(visit, made.id("b"), "B", steps, leaving=True)],
        [claimer.release(visit, answered=(made.id("b"),))],
    ).released[0]
    assert released.outcome == "kept"
    assert released.reading is not None
    assert claimer.visit(released.reading) == ["n"]
    done = progress(connection, older)
    assert done is not None
    assert done.outcomes == {"ready": 1}


def test_mechanic_1_a_reading_clears_no_hint_of_demand_that_it_does_not_hold(
    connection: Connection, opened: Opened, beside: Beside
) -> None:
    made = make(connection, BESIDE, rows=[{"a": "x"}])
    claimer = Claimer(connection)
    (visit,) = claimer.claim()
    edit(connection, made.collection.id, 1, {made.id("a"): "first"}, actor="me")
    editor, reader = opened("editor"), opened("reader")
    with editor.transaction():
        edit(editor, made.collection.id, 1, {made.id("a"): "second"}, actor="me")
        reread = beside(read, reader, claimer.id, [(visit.key, visit.token.claim)])
        wait_or_lock(connection, "autofill reader", reread)
    (reading,) = reread.result()
    dirty, signal = connection.execute("select dirty, signal from autofill.work").fetchone() or (None, None)
    assert dirty or reading.signal == signal


def test_mechanic_4_rereading_two_visits_never_deadlocks_with_demand_for_both(
    connection: Connection, opened: Opened, beside: Beside
) -> None:
    made = make(connection, BESIDE, rows=[{"a": "x"}, {"a": "y"}])
    claimer = Claimer(connection)
    visits = claimer.claim()

    def demand(connection: Connection, *rows: int) -> int:
        return dispatch(
            connection, made.collection.id, RowScope(rows), columns=[made.id("n")], reason="reprocess", actor="me"
        )

    for row in (2, 1):  # their work lies in this order in the table, and in the index that finds it
        demand(connection, row)
    holder, reader, demander = opened("holder"), opened("reader"), opened("demander")
    with holder.transaction():
        holder.execute("select from autofill.work where row_id = 2 for update")
        reread = beside(read, reader, claimer.id, [(visit.key, visit.token.claim) for visit in visits])
        wait_or_lock(connection, "autofill reader", reread)
        demanded = beside(demand, demander, 1, 2)
        wait_or_lock(connection, "autofill demander", demanded)
    assert len(reread.result()) == 2
    demanded.result()


def test_an_edit_between_what_a_call_read_and_the_number_of_its_other_input_still_shows(
    connection: Connection,
) -> None:
    """`x` is edited while `a` is in flight, so with a lower number than `a` gets when it is stored; `n`, which reads
    both and is asked for by name alone, is computed from the old `x`: its number says that it has read the new one.
    """
    made = make(connection, sheet("x", "y", "a: y", "n/never: x a"), rows=[{"x": "1", "y": "1"}])
    dispatch(connection, made.collection.id, RowScope((1,)), columns=[made.id("n")], reason="r", actor="me")
    claimer = Claimer(connection)
    (reading,) = claimer.claim()
    steps = plan(reading.row, made.version, reading.asked)
    edit(connection, made.collection.id, 1, {made.id("x"): "2"}, actor="me")
    (stored,) = claimer.flush([claimer.answer(reading, made.id("a"), "A", steps)]).stored
    reading.row.cells[made.id("a")] = Cell(
        ai_value="A", fingerprint=steps.due[0].fingerprint, called=reading.signal, change=stored.change
    )
    steps = plan(reading.row, made.version, reading.asked)
    claimer.flush([claimer.answer(reading, made.id("n"), "N of the old x", steps)])
    (released,) = claimer.flush(releases=[claimer.release(reading)]).released
    assert released.reading is not None  # the edit is newer demand
    claimer.visit(released.reading)
    assert status_counts(connection, made.collection.id)[made.id("n")] == {"outdated": 1}
    assert connection.execute("select count(*) from autofill.work").fetchone() == (0,)
