"""Cancel, pause and resume: nothing more is started, what is in flight lands, and the cells say so."""

import pytest

from cell_engine.errors import NotFoundError
from cell_engine.plan import plan
from cell_engine.store.changes import edit
from cell_engine.store.claims import recover
from cell_engine.store.control import DispatchStateError, cancel, pause, resume
from cell_engine.store.database import Connection, run
from cell_engine.store.demands import RangeScope, RowScope, dispatch, lock_work
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import Progress, progress, status_counts
from cell_engine.store.upkeep import keep_up
from tests.engine import Claimer, Made, make, sheet, wait_for_lock
from tests.store.conftest import Beside, Opened

ROWS = 10


@pytest.fixture
def made(connection: Connection) -> Made:
    return make(connection, rows=[{"a": f"x{number}"} for number in range(ROWS)], demand=False)


def sweep(connection: Connection, made: Made, *columns: str, force: bool = False) -> int:
    return dispatch(
        connection,
        made.collection.id,
        RangeScope(((1, ROWS),)),
        columns=[made.id(name) for name in columns],
        force=force,
        reason="reprocess",
        actor="me",
    )


def known(connection: Connection, dispatch_id: int) -> Progress:
    found = progress(connection, dispatch_id)
    assert found is not None
    return found


def test_a_canceled_sweep_goes_no_further_and_what_is_in_flight_lands(connection: Connection, made: Made) -> None:
    asked = sweep(connection, made, "b")
    claimer = Claimer(connection)
    visits = claimer.claim(4)
    cancel(connection, asked)
    assert known(connection, asked).ended_at is None  # four are in flight
    assert known(connection, asked).outcomes == {"canceled": 4}
    for visit in visits:
        steps = plan(visit.row, made.version, visit.asked)
        claimer.flush([claimer.answer(visit, made.id("b"), "paid for", steps)])
        again = claimer.reread(visit)
        assert again is not None
        # `c` has become due, by what `b` now shows; nobody asked for it by name, and it is put off here.
        assert claimer.flush(releases=[claimer.release(again, "hand_back")]).released[0].outcome == "released"
    Claimer(connection).work_off()
    ended = known(connection, asked)
    assert ended.ended_at is not None
    assert status_counts(connection, made.collection.id)[made.id("b")] == {"ready": 4, "canceled": 6}
    assert broken_rules(connection) == {}
    with pytest.raises(DispatchStateError, match="has ended: there is nothing to cancel"):
        cancel(connection, asked)


def test_R6_cancel_takes_back_what_was_asked_and_not_what_inputs_made_due(connection: Connection, made: Made) -> None:
    Claimer(connection).work_off()
    edit(connection, made.collection.id, 1, {made.id("a"): "moved"}, actor="me")
    asked = dispatch(
        connection, made.collection.id, RowScope((1, 2)), columns=[made.id("b")], force=True, reason="r", actor="me"
    )
    cancel(connection, asked)
    assert connection.execute("select row_id, demand, cascade from autofill.work").fetchall() == [(1, {}, True)]
    assert Claimer(connection).work_off() == ["b", "c"]
    assert known(connection, asked).ended_at is not None
    assert known(connection, asked).outcomes.get("canceled") == 2
    assert broken_rules(connection) == {}


def test_a_canceled_demand_leaves_that_of_others(connection: Connection, made: Made) -> None:
    first = dispatch(connection, made.collection.id, RowScope((1,)), columns=[made.id("b")], reason="r", actor="me")
    second = dispatch(connection, made.collection.id, RowScope((1,)), columns=[made.id("c")], reason="r", actor="me")
    cancel(connection, second)
    assert known(connection, second).ended_at is not None
    assert known(connection, first).ended_at is None
    Claimer(connection).work_off()
    assert known(connection, first).outcomes == {"ready": 2}
    assert broken_rules(connection) == {}


def test_the_janitor_finishes_a_cancel_that_died_half_way(connection: Connection, made: Made) -> None:
    asked = dispatch(connection, made.collection.id, RowScope((1, 2)), columns=[made.id("b")], reason="r", actor="me")
    run(connection, "dispatch_cancel", dispatch_id=asked)
    keep_up(connection)
    assert known(connection, asked).ended_at is not None
    assert connection.execute("select count(*) from autofill.work").fetchone() == (0,)
    assert status_counts(connection, made.collection.id)[made.id("b")] == {"canceled": 2, "empty": ROWS - 2}


@pytest.mark.parametrize("died", ["dispatch_pause", "dispatch_resume"])
def test_the_janitor_finishes_a_pause_and_a_resume_that_died_half_way(
    connection: Connection, made: Made, died: str
) -> None:
    asked = dispatch(connection, made.collection.id, RowScope((1, 2)), columns=[made.id("b")], reason="r", actor="me")
    if died == "dispatch_resume":
        pause(connection, asked)
    run(connection, died, dispatch_id=asked, reason=None)
    parked = "select bool_and(state = 'parked') from autofill.work"
    assert connection.execute(parked).fetchone() == (died == "dispatch_resume",)
    keep_up(connection)  # it may still be at it
    assert connection.execute(parked).fetchone() == (died == "dispatch_resume",)
    connection.execute("update autofill.dispatch set unsettled_at = unsettled_at - interval '11 seconds'")
    keep_up(connection)
    assert connection.execute(parked).fetchone() == (died == "dispatch_pause",)
    assert connection.execute("select count(*) from autofill.dispatch where unsettled_at is not null").fetchone() == (
        0,
    )


def test_a_paused_sweep_waits_with_its_rows_and_goes_on_where_it_was(connection: Connection, made: Made) -> None:
    asked = sweep(connection, made, "b")
    claimer = Claimer(connection)
    visits = claimer.claim(4)
    pause(connection, asked)
    claimer.flush(releases=[claimer.release(visit, "hand_back") for visit in visits])
    assert Claimer(connection).claim() == []
    assert status_counts(connection, made.collection.id)[made.id("b")] == {"paused": ROWS}
    with pytest.raises(DispatchStateError, match="is paused"):
        pause(connection, asked)
    resume(connection, asked)
    assert status_counts(connection, made.collection.id)[made.id("b")] == {"queued": ROWS}
    Claimer(connection).work_off()
    assert known(connection, asked).outcomes == {"ready": 2 * ROWS}  # and `c`, which reads it
    assert known(connection, asked).ended_at is not None
    assert broken_rules(connection) == {}


def test_an_edit_goes_ahead_of_a_pause(connection: Connection, made: Made) -> None:
    asked = dispatch(connection, made.collection.id, RowScope((1, 2)), columns=[made.id("b")], reason="r", actor="me")
    pause(connection, asked)
    edit(connection, made.collection.id, 1, {made.id("a"): "moved"}, actor="me")
    assert Claimer(connection).work_off() == ["b", "c"]
    assert [one[0] for one in connection.execute("select row_id from autofill.work").fetchall()] == [2]


def test_unknown_dispatches_and_states_are_named(connection: Connection, made: Made) -> None:
    with pytest.raises(NotFoundError, match="no dispatch 99"):
        pause(connection, 99)
    with pytest.raises(DispatchStateError, match="is not paused: there is nothing to resume"):
        resume(connection, sweep(connection, made, "b"))


def test_R8_a_cancel_between_two_pools_leaves_what_has_become_due_wanted(connection: Connection) -> None:
    made = make(connection, sheet("a", "b: a", "e!llm: b"), rows=[{"a": "x"}])
    assert Claimer(connection).work_off() == ["b", "e"]
    asked = dispatch(
        connection,
        made.collection.id,
        RowScope((1,)),
        columns=[made.id("b")],
        force=True,
        reason="reprocess",
        actor="me",
    )
    functions = Claimer(connection, ["function"])
    (visit,) = functions.claim()
    steps = plan(visit.row, made.version, visit.asked)
    functions.flush([functions.answer(visit, made.id("b"), "another", steps)])
    again = functions.reread(visit)
    assert again is not None
    functions.flush(releases=[functions.release(again, "hand_over", job_type="llm")])
    cancel(connection, asked)
    assert Claimer(connection).work_off() == ["e"]
    assert status_counts(connection, made.collection.id)[made.id("e")] == {"ready": 1}


@pytest.mark.parametrize("how", ["its worker died", "its claim was lost"])
def test_a_paused_dispatch_starts_nothing_more_when_its_rows_come_back(
    connection: Connection, made: Made, how: str
) -> None:
    asked = sweep(connection, made, "b")
    claimer = Claimer(connection, lease=0)
    assert len(claimer.claim()) > 0
    pause(connection, asked)
    if how == "its worker died":
        keep_up(connection)
    else:
        recover(connection, claimer.id, 1)
    assert Claimer(connection).claim() == []
    resume(connection, asked)
    assert "b" in Claimer(connection).work_off()


@pytest.mark.parametrize("leaving", [True, False])
def test_R8_a_janitor_that_finishes_a_cancel_leaves_what_has_become_due_wanted(
    connection: Connection, leaving: bool
) -> None:
    made = make(connection, sheet("a", "b: a", "e!llm: b"), rows=[{"a": "x"}])
    b = made.id("b")
    assert Claimer(connection).work_off() == ["b", "e"]
    asked = dispatch(
        connection, made.collection.id, RowScope((1,)), columns=[b], force=True, reason="reprocess", actor="me"
    )
    functions = Claimer(connection, ["function"])
    (visit,) = functions.claim()
    steps = plan(visit.row, made.version, visit.asked)
    cancel(connection, asked)  # while `b` is in flight
    answer = functions.answer(visit, b, "another", steps, leaving=leaving)
    if leaving:
        release = functions.release(visit, "hand_over", job_type="llm", answered=(b,))
        (one,) = functions.flush([answer], [release]).released
        assert one.outcome == "kept"
        again = one.reading
    else:
        functions.flush([answer])
        again = functions.reread(visit)
    assert again is not None
    functions.flush(releases=[functions.release(again, "hand_over", job_type="llm")])
    keep_up(connection)
    assert Claimer(connection).work_off() == ["e"]


@pytest.mark.parametrize("columns", [[], ["b"]], ids=["what moved", "by name"])
def test_R6_canceling_a_paused_dispatch_lets_go_of_the_rows_that_moved(
    connection: Connection, made: Made, columns: list[str]
) -> None:
    edit(connection, made.collection.id, 1, {made.id("a"): "edited"}, actor="me")
    asked = dispatch(
        connection,
        made.collection.id,
        RowScope((1,)),
        columns=[made.id(name) for name in columns],
        reason="reprocess",
        actor="me",
    )
    pause(connection, asked)
    cancel(connection, asked)
    assert Claimer(connection).work_off() == ["b", "c"]
    assert known(connection, asked).ended_at is not None


def two(connection: Connection, made: Made) -> tuple[int, int]:
    """Two dispatches over one row, by name."""
    first, second = (
        dispatch(connection, made.collection.id, RowScope((1,)), columns=[made.id(name)], reason="r", actor="me")
        for name in ("b", "c")
    )
    return first, second


def states(connection: Connection) -> list[str]:
    return [one.state for one in connection.execute("select state::text from autofill.work order by row_id")]


@pytest.mark.parametrize("resumed", [0, 1])
def test_a_row_waits_when_all_that_want_it_are_paused_and_goes_on_with_the_first_resumed(
    connection: Connection, made: Made, resumed: int
) -> None:
    asked = two(connection, made)
    pause(connection, asked[resumed])
    assert states(connection) == ["queued"]  # the other one wants it
    pause(connection, asked[1 - resumed])
    assert states(connection) == ["parked"]
    resume(connection, asked[resumed])
    assert states(connection) == ["queued"]
    Claimer(connection).work_off()
    assert all(known(connection, one).ended_at is not None for one in asked)
    assert broken_rules(connection) == {}


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("canceled", [0, 1])
def test_a_row_that_a_cancel_leaves_to_a_paused_dispatch_waits_for_it(
    connection: Connection, made: Made, canceled: int, both: bool
) -> None:
    asked = two(connection, made)
    for one in asked if both else [asked[1 - canceled]]:
        pause(connection, one)
    cancel(connection, asked[canceled])
    assert states(connection) == ["parked"]
    assert known(connection, asked[canceled]).ended_at is not None
    resume(connection, asked[1 - canceled])
    Claimer(connection).work_off()
    assert known(connection, asked[1 - canceled]).ended_at is not None
    assert broken_rules(connection) == {}


def test_new_demand_lets_go_of_a_row_that_two_paused_dispatches_want(connection: Connection, made: Made) -> None:
    for one in two(connection, made):
        pause(connection, one)
    edit(connection, made.collection.id, 1, {made.id("a"): "moved"}, actor="me")
    assert states(connection) == ["queued"]


@pytest.mark.parametrize("stopped", ["paused", "canceled"])
@pytest.mark.parametrize("how", ["its worker died", "its claim was lost", "it was handed back"])
def test_a_row_that_comes_back_waits_when_all_that_want_it_are_paused(
    connection: Connection, made: Made, how: str, stopped: str
) -> None:
    first, second = two(connection, made)
    claimer = Claimer(connection, lease=0)
    (visit,) = claimer.claim()
    pause(connection, first)
    (pause if stopped == "paused" else cancel)(connection, second)
    if how == "its worker died":
        keep_up(connection)
    elif how == "its claim was lost":
        recover(connection, claimer.id, 1)
    else:
        claimer.flush(releases=[claimer.release(visit, "hand_back")])
    assert states(connection) == ["parked"]
    resume(connection, first)
    assert "b" in Claimer(connection).work_off()
    assert broken_rules(connection) == {}


def test_a_visit_that_answers_the_last_that_goes_on_leaves_the_row_to_the_paused_one(connection: Connection) -> None:
    made = make(connection, sheet("a", "b: a", "e!llm: a"), rows=[{"a": "x"}], demand=False)
    goes_on, paused = (
        dispatch(connection, made.collection.id, RowScope((1,)), columns=[made.id(name)], reason="r", actor="me")
        for name in ("b", "e")
    )
    pause(connection, paused)
    claimer = Claimer(connection)
    (visit,) = claimer.claim()
    b = made.id("b")
    answer = claimer.answer(visit, b, "B", plan(visit.row, made.version, visit.asked), leaving=True)
    claimer.flush([answer], [claimer.release(visit, "hand_over", job_type="llm", answered=(b,))])
    assert states(connection) == ["parked"]
    assert known(connection, goes_on).ended_at is not None


@pytest.mark.parametrize("last", ["pause", "resume"])
def test_a_row_that_comes_back_while_its_dispatch_is_paused_or_resumed_follows_it(
    connection: Connection, made: Made, opened: Opened, beside: Beside, last: str
) -> None:
    asked = dispatch(connection, made.collection.id, RowScope((1,)), columns=[made.id("b")], reason="r", actor="me")
    claimer, holder = Claimer(opened("claimer")), opened("holder")
    claimer.claim()
    if last == "resume":
        pause(connection, asked)
    with holder.transaction():  # as `last` does when it has come to the row
        lock_work(holder, made.collection.id, [1])
        recovered = beside(recover, claimer.connection, claimer.id, 1)
        wait_for_lock(connection, "autofill claimer")
        run(connection, f"dispatch_{last}", dispatch_id=asked, reason=None)
        run(holder, "work_park", collections=[made.collection.id], rows=[1])
    recovered.result()
    assert states(connection) == ["parked" if last == "pause" else "queued"]


def test_R7_a_cancel_that_takes_a_row_from_a_third_dispatch_looks_for_its_end(connection: Connection) -> None:
    made = make(connection, sheet("a", "b: a", "e!llm: a", "f!llm: a"), rows=[{"a": "x"}], demand=False)
    asked = [
        dispatch(connection, made.collection.id, RowScope((1,)), columns=[made.id(name)], reason="r", actor="me")
        for name in ("e", "f", "b")
    ]
    claimer = Claimer(connection)
    (visit,) = claimer.claim()
    b = made.id("b")
    answer = claimer.answer(visit, b, "B", plan(visit.row, made.version, visit.asked), leaving=True)
    claimer.flush([answer], [claimer.release(visit, "hand_over", job_type="llm", answered=(b,))])
    cancel(connection, asked[0])  # the row, which was the last one's, is the second's now
    Claimer(connection).work_off()
    assert all(known(connection, one).ended_at is not None for one in asked)
