"""Rows that leave with their last answer, in the statement that stores it: against demand that comes at that moment."""

from concurrent.futures import Future

from cell_engine.plan import plan
from cell_engine.store.changes import edit
from cell_engine.store.claims import Reading
from cell_engine.store.database import Connection
from cell_engine.store.demands import RangeScope, dispatch
from cell_engine.store.reading import page, progress
from cell_engine.store.results import Flushed, Release, Result, flush
from tests.engine import Claimer, Made, make, sheet, wait_for_lock
from tests.store.conftest import Beside, Opened


def about_to_leave(connection: Connection) -> tuple[Made, Claimer, Reading, list[Result], list[Release]]:
    made = make(connection, sheet("a", "b: a"), rows=[{"a": "x"}])
    claimer = Claimer(connection)
    (visit,) = claimer.claim()
    b = made.id("b")
    answer = claimer.answer(visit, b, "b(x)", plan(visit.row, made.version, visit.asked), leaving=True)
    return made, claimer, visit, [answer], [claimer.release(visit, answered=(b,), owes=False)]


def shown(connection: Connection, made: Made) -> object:
    _, cells = page(connection, made.collection.id)
    return next(cell.value for cell in cells if cell.column_id == made.id("b"))


def assert_goes_on_with_the_edit(connection: Connection, made: Made, claimer: Claimer, flushed: Flushed) -> None:
    (one,) = flushed.released
    assert one.outcome == "kept"
    assert one.reading is not None
    assert claimer.visit(one.reading) == ["b"]
    assert shown(connection, made) == "b(edited)"


def test_R7_what_leaves_gives_its_slot_back_and_ends_its_dispatch(connection: Connection) -> None:
    made, claimer, visit, results, releases = about_to_leave(connection)
    flushed = claimer.flush(results, releases)
    assert [one.outcome for one in flushed.released] == ["released"]
    assert flushed.freed == {made.collection.id: 1}
    assert connection.execute("select count(*) from autofill.work").fetchone() == (0,)
    found = progress(connection, visit.dispatch_id)
    assert found is not None
    assert found.ended_at is not None
    # once more, as after a commit that was not heard of: somebody else's by now, and no slot comes free twice
    again = claimer.flush(results, releases)
    assert [one.outcome for one in again.released] == ["lost"]
    assert not again.freed.total()


def test_R6_demand_that_commits_before_a_row_leaves_keeps_it(connection: Connection) -> None:
    made, claimer, _, results, releases = about_to_leave(connection)
    edit(connection, made.collection.id, 1, {made.id("a"): "edited"}, actor="me")
    flushed = claimer.flush(results, releases)
    assert not flushed.freed.total()
    assert_goes_on_with_the_edit(connection, made, claimer, flushed)


def test_R6_demand_that_is_open_when_a_row_leaves_keeps_it(
    connection: Connection, opened: Opened, beside: Beside
) -> None:
    made, claimer, _, results, releases = about_to_leave(connection)
    editor, storing = opened("editor"), opened("storing")
    with editor.transaction():
        edit(editor, made.collection.id, 1, {made.id("a"): "edited"}, actor="me")
        flushed: Future[Flushed] = beside(flush, storing, claimer.id, results, releases)
        wait_for_lock(connection, "autofill storing")
    assert_goes_on_with_the_edit(connection, made, claimer, flushed.result())


def test_R6_demand_that_waits_for_a_row_that_leaves_makes_new_work(
    connection: Connection, opened: Opened, beside: Beside
) -> None:
    made, claimer, _, results, releases = about_to_leave(connection)
    editor, storing = opened("editor"), opened("storing")
    with storing.transaction():
        assert flush(storing, claimer.id, results, releases).released[0].outcome == "released"
        edited = beside(edit, editor, made.collection.id, 1, {made.id("a"): "edited"}, actor="me")
        wait_for_lock(connection, "autofill editor")
    edited.result()
    assert Claimer(connection).work_off() == ["b"]
    assert shown(connection, made) == "b(edited)"


def test_R6_a_sweep_that_meets_a_row_that_leaves_comes_back(connection: Connection, opened: Opened) -> None:
    made, claimer, _, results, releases = about_to_leave(connection)
    storing, other = opened("storing"), Claimer(connection)
    with storing.transaction():
        assert flush(storing, claimer.id, results, releases).released[0].outcome == "released"
        # asked for while the row, which nobody has locked, still has its work
        asked = dispatch(
            connection, made.collection.id, RangeScope(((1, 1),)), columns=[made.id("b")], force=True, reason="r",
            actor="me",
        )  # fmt: skip
        assert other.claim() == []
    assert other.work_off() == ["b"]
    found = progress(connection, asked)
    assert found is not None
    assert found.ended_at is not None


def test_a_row_leaves_whoever_has_it_locked(connection: Connection, opened: Opened) -> None:
    """All demand is raised under the lock of its work, so that an edit about to come is none to wait for."""
    _, claimer, _, results, releases = about_to_leave(connection)
    editor, storing = opened("editor"), opened("storing")
    storing.execute("set lock_timeout = '5s'")
    with editor.transaction():
        editor.execute("select from autofill.row for update")
        assert flush(storing, claimer.id, results, releases).released[0].outcome == "released"
