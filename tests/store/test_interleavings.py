"""R1-R3 and R5-R7, each with the interleaving that would break it forced: transactions are held open where it hurts."""

from concurrent.futures import Future
from dataclasses import replace

import psycopg
import pytest

from cell_engine.plan import plan
from cell_engine.store import results
from cell_engine.store.changes import edit
from cell_engine.store.claims import Reading, Token, _take
from cell_engine.store.database import Connection, Cursor, run
from cell_engine.store.demands import RangeScope, RowScope, dispatch
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import page, progress, recent_dispatches
from cell_engine.store.results import Flushed, end_dispatches, flush
from tests.engine import Claimer, Made, make, sheet, wait_for_lock
from tests.store.conftest import Beside, Opened
from tests.store.visits import Worker

ONE = sheet("a", "b: a")


def visit_of(claimer: Claimer) -> Reading:
    (visit,) = claimer.claim()
    return visit


def state(connection: Connection) -> list[tuple[object, ...]]:
    """All that a loser must leave alone: cells and work."""
    cells = connection.execute("select cell::text from autofill.cell order by 1").fetchall()
    return [*cells, *connection.execute("select work::text from autofill.work order by 1").fetchall()]


def attempts(connection: Connection) -> list[tuple[str, int]]:
    found = connection.execute("select outcome, tokens_in from autofill.attempt order by id").fetchall()
    return [(one.outcome, one.tokens_in) for one in found]


# ---- R1


@pytest.mark.parametrize("scope", [RowScope((1, 2, 3)), RangeScope(((1, 3),))], ids=["rows", "sweep"])
def test_R1_two_that_claim_at_once_share_no_row(
    connection: Connection, opened: Opened, scope: RowScope | RangeScope
) -> None:
    made = make(connection, ONE, rows=[{"a": "x"}, {"a": "y"}, {"a": "z"}], demand=False)
    dispatch(connection, made.collection.id, scope, reason="reprocess", actor="me")
    one, two = (Worker(on, on, ["function"]) for on in (opened("one"), opened("two")))
    slots = [worker.quota(2) for worker in (one, two)]
    with one.claiming.transaction():  # its rows are taken, and nobody sees that yet
        first = _take(one.claiming, one.token(), slots[0]).visits
        second = _take(two.claiming, two.token(), slots[1]).visits
    rest = Claimer(connection).claim()
    assert len(first) == 2
    assert sorted(visit.key.row_id for visit in first + second + rest) == [1, 2, 3]


def test_R1_a_row_in_flight_is_not_claimed_again_whoever_wants_it(connection: Connection) -> None:
    made = make(connection, ONE, rows=[{"a": "x"}])
    visit = visit_of(Claimer(connection))
    for scope in (RowScope((1,)), RangeScope(((1, 1),))):
        dispatch(connection, made.collection.id, scope, columns=[made.id("b")], force=True, reason="r", actor="me")
        assert Claimer(connection).claim() == []
    held = connection.execute("select worker_id, claim from autofill.work").fetchall()
    assert [tuple(one) for one in held] == [(visit.token.worker_id, visit.token.claim)]


# ---- R2


def test_R2_a_wrong_token_changes_nothing_and_its_usage_is_booked(connection: Connection) -> None:
    made = make(connection, ONE, rows=[{"a": "x"}])
    claimer, other = Claimer(connection), Claimer(connection)
    visit = visit_of(claimer)
    steps = plan(visit.row, made.version, visit.asked)
    before = state(connection)
    for worker, token in (
        (claimer, Token(claimer.id, visit.token.claim + 1)),  # the counter of another claim
        (other, Token(other.id, visit.token.claim)),  # the start of another worker
    ):
        result = claimer.answer(visit, made.id("b"), "wrong", steps, token=token, tokens_in=7)
        flushed = worker.flush([result], [replace(claimer.release(visit), token=token)])
        assert [one.won for one in flushed.stored] == [False]
        assert [one.outcome for one in flushed.released] == ["lost"]
    assert state(connection) == before
    assert attempts(connection) == [("superseded", 7), ("superseded", 7)]
    assert broken_rules(connection) == {}


def test_R2_a_late_answer_loses_to_the_visit_that_came_after_it(connection: Connection) -> None:
    made = make(connection, ONE, rows=[{"a": "x"}])
    late, next_one = Claimer(connection), Claimer(connection)
    visit = visit_of(late)
    steps = plan(visit.row, made.version, visit.asked)
    late.flush(releases=[late.release(visit, "hand_back")])
    again = visit_of(next_one)
    before = state(connection)
    assert not late.flush([late.answer(visit, made.id("b"), "late", steps, tokens_in=7)]).stored[0].won
    assert state(connection) == before
    assert next_one.flush([next_one.answer(again, made.id("b"), "right", steps)]).stored[0].won
    before = state(connection)
    assert not late.flush([late.answer(visit, made.id("b"), "later", steps, tokens_in=7)]).stored[0].won
    assert state(connection) == before
    assert attempts(connection) == [("superseded", 7), ("succeeded", 0), ("superseded", 7)]


def test_R2_the_same_batch_twice_is_stored_once(connection: Connection) -> None:
    made = make(connection, ONE, rows=[{"a": "x"}])
    claimer = Claimer(connection)
    visit = visit_of(claimer)
    steps = plan(visit.row, made.version, visit.asked)
    batch = (
        [claimer.answer(visit, made.id("b"), "B", steps, leaving=True)],
        [claimer.release(visit, answered=(made.id("b"),))],
    )
    assert claimer.flush(*batch).released[0].outcome == "released"
    before = state(connection)
    assert claimer.flush(*batch).released[0].outcome == "lost"
    assert state(connection) == before
    load = recent_dispatches(connection, made.collection.id)[0]
    assert load.outcomes == {"ready": 1}
    assert load.attempts == {"succeeded": 1, "superseded": 1}


# ---- R3


def test_R3_a_cell_and_its_work_commit_together_or_not_at_all(
    connection: Connection, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(connection, ONE, rows=[{"a": "x"}])
    storing = opened("storing")
    claimer = Claimer(connection)
    visit = visit_of(claimer)
    steps = plan(visit.row, made.version, visit.asked)
    before = state(connection)

    def seen_and_cut_off(on: Connection, name: str, /, **parameters: object) -> Cursor:
        if name != "release":
            return run(on, name, **parameters)
        # The cell is stored, its row not released yet: nobody sees either, and then the connection is gone.
        assert state(connection) == before
        connection.execute("select pg_terminate_backend(%s, 5000)", [on.info.backend_pid])
        return run(on, name, **parameters)

    monkeypatch.setattr(results, "run", seen_and_cut_off)
    answer = claimer.answer(visit, made.id("b"), "B", steps, leaving=True)
    with pytest.raises(psycopg.OperationalError):
        flush(storing, claimer.id, [answer], [claimer.release(visit, answered=(made.id("b"),))])
    assert state(connection) == before
    assert attempts(connection) == []
    monkeypatch.undo()
    assert claimer.visit(visit) == ["b"]
    assert state(connection) != before


# ---- R5


def test_R5_an_edit_that_is_open_when_its_cell_is_answered_stays(
    connection: Connection, opened: Opened, beside: Beside
) -> None:
    made = make(connection, ONE, rows=[{"a": "x"}])
    editor, storing = opened("editor"), opened("storing")
    claimer = Claimer(connection)
    visit = visit_of(claimer)
    steps = plan(visit.row, made.version, visit.asked)
    with editor.transaction():
        edit(editor, made.collection.id, 1, {made.id("b"): "mine"}, actor="me")
        flushed = beside(flush, storing, claimer.id, [claimer.answer(visit, made.id("b"), "machine", steps)], [])
        wait_for_lock(connection, "autofill storing")
    assert flushed.result().stored[0].won
    cell = connection.execute("select user_set, user_value, user_actor, ai_value from autofill.cell").fetchone()
    assert cell == (True, "mine", "me", "machine")
    _, cells = page(connection, made.collection.id)
    assert [(one.value, one.status) for one in cells] == [("mine", "overridden")]


@pytest.mark.parametrize("value", ["mine", None])
def test_R5_no_ending_of_a_call_touches_a_persons_value(connection: Connection, value: str | None) -> None:
    made = make(connection, ONE, rows=[{"a": "x"}], demand=False)
    b = made.id("b")
    edit(connection, made.collection.id, 1, {b: value}, actor="me")
    query = "select user_set, user_value, user_actor, user_at from autofill.cell"
    before = connection.execute(query).fetchall()
    claimer = Claimer(connection)
    endings = ({"value": "B"}, {"error_class": "refused", "error": "no"}, {"error_class": "transient", "error": "no"})
    for ending in endings:
        dispatch(connection, made.collection.id, RowScope((1,)), columns=[b], force=True, reason="r", actor="me")
        visit = visit_of(claimer)
        steps = plan(visit.row, made.version, visit.asked)
        retry = ending.get("error_class") == "transient"
        result = replace(claimer.answer(visit, b, None, steps), retry=retry, **ending)  # type: ignore[arg-type]
        claimer.flush([result])
        claimer.flush(releases=[claimer.release(visit, "delay" if retry else "done", seconds=0 if retry else None)])
        assert connection.execute(query).fetchall() == before


# ---- R6


def test_R6_a_claim_takes_no_row_whose_edit_is_open_and_then_reads_what_was_edited(
    connection: Connection, opened: Opened
) -> None:
    made = make(connection, ONE, rows=[{"a": "x"}], demand=False)
    dispatch(connection, made.collection.id, RowScope((1,)), reason="reprocess", actor="me")
    editor = opened("editor")
    claimer = Claimer(connection)
    with editor.transaction():
        edit(editor, made.collection.id, 1, {made.id("a"): "edited"}, actor="me")
        assert claimer.claim() == []
    assert claimer.visit(visit_of(claimer)) == ["b"]
    assert _value(connection, made, "b") == "b(edited)"


def test_R6_a_sweep_comes_back_for_a_row_whose_edit_was_open(connection: Connection, opened: Opened) -> None:
    made = make(connection, ONE, rows=[{"a": "x"}, {"a": "y"}], demand=False)
    asked = dispatch(connection, made.collection.id, RangeScope(((1, 2),)), reason="reprocess", actor="me")
    editor = opened("editor")
    claimer = Claimer(connection)
    with editor.transaction():
        edit(editor, made.collection.id, 1, {made.id("a"): "edited"}, actor="me")
        assert [visit.key.row_id for visit in claimer.claim()] == [2]
        open_ = connection.execute(
            "select closed_at is null, (select count(*) from autofill.sweep_hole) from autofill.sweep"
        )
        assert open_.fetchone() == (True, 1)
    claimer.work_off()
    assert _value(connection, made, "b") == "b(edited)"
    found = progress(connection, asked)
    assert found is not None
    assert found.rows_ahead == 0
    assert connection.execute("select count(*) from autofill.sweep where closed_at is null").fetchone() == (0,)


@pytest.mark.parametrize("scope", ["rows", "sweep"])
def test_R6_an_edit_cannot_come_between_the_locks_of_a_claim_and_its_reading(
    connection: Connection, opened: Opened, beside: Beside, scope: str
) -> None:
    made = make(connection, ONE, rows=[{"a": "x"}], demand=False)
    where = RowScope((1,)) if scope == "rows" else RangeScope(((1, 1),))
    dispatch(connection, made.collection.id, where, reason="reprocess", actor="me")
    claiming, editor = opened("claiming"), opened("editor")
    claimer = Claimer(claiming)
    with claiming.transaction():
        (visit,) = claimer.claim()
        edited = beside(edit, editor, made.collection.id, 1, {made.id("a"): "edited"}, actor="me")
        wait_for_lock(connection, "autofill editor")
        (again,) = [claimer.reread(visit)]
        assert again is not None
        assert (again.row, again.signal) == (visit.row, visit.signal)
    edited.result()
    # What it read is old now, and its work says so: the release is refused.
    assert connection.execute("select dirty from autofill.work").fetchone() == (True,)
    assert claimer.visit(visit) == ["b", "b"]
    assert _value(connection, made, "b") == "b(edited)"


def test_R6_demand_that_commits_before_a_release_keeps_the_visit(connection: Connection) -> None:
    made, claimer, visit = answered(connection)
    edit(connection, made.collection.id, 1, {made.id("a"): "edited"}, actor="me")
    released = claimer.flush(releases=[claimer.release(visit)]).released[0]
    assert released.outcome == "kept"
    assert released.reading is not None
    assert claimer.visit(released.reading) == ["b"]
    assert _value(connection, made, "b") == "b(edited)"


def test_R6_demand_that_is_open_when_its_row_is_released_keeps_the_visit(
    connection: Connection, opened: Opened, beside: Beside
) -> None:
    made, claimer, visit = answered(connection)
    editor, storing = opened("editor"), opened("storing")
    with editor.transaction():
        edit(editor, made.collection.id, 1, {made.id("a"): "edited"}, actor="me")
        released: Future[Flushed] = beside(flush, storing, claimer.id, [], [claimer.release(visit)])
        wait_for_lock(connection, "autofill storing")
    (one,) = released.result().released
    assert one.outcome == "kept"
    assert one.reading is not None
    assert claimer.visit(one.reading) == ["b"]
    assert _value(connection, made, "b") == "b(edited)"


def test_R6_demand_that_waits_for_a_release_makes_new_work(
    connection: Connection, opened: Opened, beside: Beside
) -> None:
    made, claimer, visit = answered(connection)
    editor, storing = opened("editor"), opened("storing")
    with storing.transaction():
        (one,) = flush(storing, claimer.id, [], [claimer.release(visit)]).released
        assert one.outcome == "released"
        edited = beside(edit, editor, made.collection.id, 1, {made.id("a"): "edited"}, actor="me")
        wait_for_lock(connection, "autofill editor")
    edited.result()
    assert Claimer(connection).work_off() == ["b"]
    assert _value(connection, made, "b") == "b(edited)"


def test_R6_a_sweep_that_meets_an_open_release_comes_back(connection: Connection, opened: Opened) -> None:
    made, claimer, visit = answered(connection)
    whole, b = RangeScope(((1, 1),)), [made.id("b")]
    asked = dispatch(connection, made.collection.id, whole, columns=b, force=True, reason="r", actor="me")
    storing = opened("storing")
    other = Claimer(connection)
    with storing.transaction():
        (one,) = flush(storing, claimer.id, [], [claimer.release(visit)]).released
        assert one.outcome == "released"
        assert other.claim() == []
    assert other.work_off() == ["b"]
    found = progress(connection, asked)
    assert found is not None
    assert found.ended_at is not None
    assert found.outcomes == {"unchanged": 1}


def test_R6_a_sweep_that_meets_queued_work_raises_it(connection: Connection) -> None:
    made = make(connection, sheet("a", "b: a", "n/never: a"), rows=[{"a": "x"}], demand=False)
    edit(connection, made.collection.id, 1, {made.id("a"): "edited"}, actor="me")
    asked = dispatch(
        connection, made.collection.id, RangeScope(((1, 1),)), columns=[made.id("n")], reason="reprocess", actor="me"
    )
    claimer = Claimer(connection)
    assert sorted(claimer.work_off()) == ["b", "n"]
    found = progress(connection, asked)
    assert found is not None
    # it is the visit's latest demand: what the edit made due counts here, too
    assert (found.outcomes, found.ended_at is not None) == ({"ready": 2}, True)


@pytest.mark.parametrize("first", ["forced", "not forced"])
def test_R6_a_force_outlives_the_next_demand_for_its_cell(connection: Connection, first: str) -> None:
    made = make(connection, sheet("a", "n/never: a"), rows=[{"a": "x"}], demand=False)
    n, row = [made.id("n")], RowScope((1,))
    dispatch(connection, made.collection.id, row, columns=n, reason="r", actor="me")
    claimer = Claimer(connection)
    assert claimer.work_off() == ["n"]  # it is fresh now: only a force has it called again
    for force in (first == "forced", first != "forced"):
        dispatch(connection, made.collection.id, row, columns=n, force=force, reason="r", actor="me")
    assert claimer.work_off() == ["n"]


def test_R6_an_answer_does_not_meet_what_was_asked_while_it_was_on_its_way(connection: Connection) -> None:
    made = make(connection, ONE, rows=[{"a": "x"}])
    b = made.id("b")
    claimer = Claimer(connection)
    visit = visit_of(claimer)
    steps = plan(visit.row, made.version, visit.asked)
    dispatch(connection, made.collection.id, RowScope((1,)), columns=[b], force=True, reason="r", actor="me")
    claimer.flush([claimer.answer(visit, b, "B", steps)])
    again = claimer.reread(visit)
    assert again is not None
    assert claimer.visit(again) == ["b"]


# ---- R7


def test_R7_two_releases_of_the_last_rows_at_once_end_the_dispatch_once(connection: Connection, opened: Opened) -> None:
    made = make(connection, ONE, rows=[{"a": "x"}, {"a": "y"}])
    load = recent_dispatches(connection, made.collection.id)[0].id
    claimer = Claimer(connection)
    first, second = claimer.claim()
    for visit in (first, second):
        steps = plan(visit.row, made.version, visit.asked)
        claimer.flush([claimer.answer(visit, made.id("b"), "B", steps)])
    one, two = opened("one"), opened("two")
    with two.transaction():
        flush(two, claimer.id, [], [claimer.release(second)])
        flush(one, claimer.id, [], [claimer.release(first)])
        assert end_dispatches(one, [load]) == []  # the other row is still in flight, as far as anybody can see
    with one.transaction():
        assert end_dispatches(one, [load]) == [load]
    assert end_dispatches(two, [load]) == []


def test_R7_two_that_end_a_dispatch_at_once_end_it_once(connection: Connection, opened: Opened, beside: Beside) -> None:
    made = make(connection, ONE, rows=[{"a": "x"}])
    load = recent_dispatches(connection, made.collection.id)[0].id
    claimer = Claimer(connection)
    visit = visit_of(claimer)
    steps = plan(visit.row, made.version, visit.asked)
    claimer.flush([claimer.answer(visit, made.id("b"), "B", steps)])
    flush(connection, claimer.id, [], [claimer.release(visit)])
    one, two = opened("one"), opened("two")
    with one.transaction():
        assert end_dispatches(one, [load]) == [load]
        other = beside(end_dispatches, two, [load])
        wait_for_lock(connection, "autofill two")
    assert other.result() == []


def test_R7_a_displaced_demand_is_credited_as_superseded_with_its_successor(connection: Connection) -> None:
    made = make(connection, sheet("a", "n/never: a"), rows=[{"a": "x"}], demand=False)
    first, second = (
        dispatch(connection, made.collection.id, RowScope((1,)), columns=[made.id("n")], reason="r", actor="me")
        for _ in range(2)
    )
    found = progress(connection, first)
    assert found is not None
    assert (found.outcomes, found.ended_at is not None) == ({"superseded": 1}, True)
    assert Claimer(connection).work_off() == ["n"]
    found = progress(connection, second)
    assert found is not None
    assert (found.outcomes, found.ended_at is not None) == ({"ready": 1}, True)


def test_R7_a_sweep_that_comes_late_is_superseded_by_the_newer_demand(connection: Connection) -> None:
    made = make(connection, sheet("a", "n/never: a"), rows=[{"a": "x"}], demand=False)
    older = dispatch(
        connection, made.collection.id, RangeScope(((1, 1),)), columns=[made.id("n")], reason="sweep", actor="me"
    )
    newer = dispatch(connection, made.collection.id, RowScope((1,)), columns=[made.id("n")], reason="r", actor="me")
    assert Claimer(connection).work_off() == ["n"]
    outcomes = [one.outcomes for one in (progress(connection, older), progress(connection, newer)) if one is not None]
    assert outcomes == [{"superseded": 1}, {"ready": 1}]


def test_R7_a_sweep_with_a_hole_does_not_end(connection: Connection, opened: Opened) -> None:
    made = make(connection, ONE, rows=[{"a": "x"}, {"a": "y"}])
    load = recent_dispatches(connection, made.collection.id)[0].id
    holder = opened("holder")
    claimer = Claimer(connection)
    with holder.transaction():
        holder.execute("select from autofill.row where row_id = 1 for update")
        claimer.work_off()
        assert end_dispatches(connection, [load]) == []
    assert claimer.work_off() == ["b"]
    found = progress(connection, load)
    assert found is not None
    assert (found.outcomes, found.ended_at is not None) == ({"ready": 2}, True)


# ---- R10


def test_R10_an_equal_answer_moves_no_change_number(connection: Connection) -> None:
    made = make(connection, sheet("a", "b: a", "c: b"), rows=[{"a": "x"}])
    claimer = Claimer(connection)
    assert claimer.work_off() == ["b", "c"]
    query = "select column_id, change from autofill.cell order by column_id"
    before = connection.execute(query).fetchall()
    b = [made.id("b")]
    asked = dispatch(connection, made.collection.id, RowScope((1,)), columns=b, force=True, reason="r", actor="me")
    (visit,) = claimer.claim()
    steps = plan(visit.row, made.version, visit.asked)
    claimer.flush([claimer.answer(visit, made.id("b"), "b(x)", steps)], [claimer.release(visit)])
    assert connection.execute(query).fetchall() == before
    _, cells = page(connection, made.collection.id)
    assert [cell.status for cell in cells] == ["ready", "ready"]
    found = progress(connection, asked)
    assert found is not None
    assert found.outcomes == {"unchanged": 1}


def test_R5_an_answer_under_a_persons_value_moves_no_change_number(connection: Connection) -> None:
    made = make(connection, sheet("a", "b: a", "c: b"), rows=[{"a": "x"}])
    claimer = Claimer(connection)
    assert claimer.work_off() == ["b", "c"]
    edit(connection, made.collection.id, 1, {made.id("b"): "mine"}, actor="me")
    assert claimer.work_off() == ["c"]
    query = "select column_id, change from autofill.cell order by column_id"
    before = connection.execute(query).fetchall()
    b = [made.id("b")]
    dispatch(connection, made.collection.id, RowScope((1,)), columns=b, force=True, reason="r", actor="me")
    assert claimer.work_off(lambda _: "another") == ["b"]  # what is shown stays, and so does what reads it
    assert connection.execute(query).fetchall() == before


def answered(connection: Connection) -> tuple[Made, Claimer, Reading]:
    """A visit whose every call is answered, about to be released."""
    made = make(connection, ONE, rows=[{"a": "x"}])
    claimer = Claimer(connection)
    visit = visit_of(claimer)
    steps = plan(visit.row, made.version, visit.asked)
    claimer.flush([claimer.answer(visit, made.id("b"), "b(x)", steps)])
    return made, claimer, visit


def _value(connection: Connection, made: Made, column: str) -> object:
    _, cells = page(connection, made.collection.id)
    return next(cell.value for cell in cells if cell.row_id == 1 and cell.column_id == made.id(column))
