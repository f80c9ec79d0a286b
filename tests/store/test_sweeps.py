"""Sweeps: mechanics 5 and 6. What they pass, they come back for; what somebody holds, holds up nobody else."""

from cell_engine.specs.compile import compile_text
from cell_engine.store.applying import apply
from cell_engine.store.database import Connection, statement
from cell_engine.store.demands import RangeScope, RowScope, dispatch
from cell_engine.store.sweeping import WINDOW_ROWS
from tests.engine import Claimer, make, sheet, wait_for_lock
from tests.store.conftest import Beside, Opened

WHOLE = RangeScope(((1, 3),))


def test_mechanic_5_a_held_row_of_one_sweep_holds_up_no_other_sweep(connection: Connection, opened: Opened) -> None:
    made = make(connection, rows=[{"a": "x"}, {"a": "y"}, {"a": "z"}], demand=False)
    holder = opened("holder")
    claimer = Claimer(connection)
    with holder.transaction():
        holder.execute("select from autofill.row where row_id = 1 for update")
        dispatch(connection, made.collection.id, RangeScope(((1, 1),)), reason="load", actor="me")
        dispatch(connection, made.collection.id, RangeScope(((2, 3),)), reason="load", actor="me")
        assert [visit.key.row_id for _ in range(3) for visit in claimer.claim()] == [2, 3]


def test_mechanic_6_a_sweep_skips_only_what_was_answered_under_the_current_definition(connection: Connection) -> None:
    made = make(connection, sheet("a", "n/never: a"), rows=[{"a": "x"}], demand=False)
    dispatch(connection, made.collection.id, RangeScope(((1, 1),)), columns=[made.id("n")], reason="sweep", actor="me")
    dispatch(connection, made.collection.id, RowScope((1,)), columns=[made.id("n")], reason="one", actor="me")
    claimer = Claimer(connection)
    (visit,) = claimer.claim(slots=1)
    assert claimer.visit(visit) == ["n"]
    apply(connection, compile_text(sheet("a", "n@2/never: a")), actor="me")
    assert claimer.work_off() == ["n"]


def test_mechanic_9_the_sweeps_of_all_lanes_leave_the_reserve(connection: Connection) -> None:
    made = make(connection, sheet("a", "f: a", "m!llm: a", cap=10), rows=[{"a": "x"}] * 30, demand=False)
    for column, rows in (("f", (1, 15)), ("m", (16, 30))):
        dispatch(connection, made.collection.id, RangeScope((rows,)), columns=[made.id(column)], reason="r", actor="me")
    assert len(Claimer(connection).claim()) <= 9


def test_mechanic_2_a_sweep_reads_a_row_as_it_is_when_it_is_locked_not_as_its_snapshot_has_it(
    connection: Connection, opened: Opened, beside: Beside
) -> None:
    made = make(connection, rows=[{"a": "old"}], demand=False)
    dispatch(connection, made.collection.id, RangeScope(((1, 1),)), reason="load", actor="me")
    # The statement itself, held up between its snapshot and its locks.
    counted = "select count(*) as count from ("
    gate = "(select 0 from (select pg_advisory_xact_lock(7)::text as held offset 0) as gate where held is not null)"
    held_up = f"select count(*) + {gate} as count from ("
    text = statement("sweep_windows").decode()
    assert text.count(counted) == 1
    claimer = opened("claimer")
    lane = {"collections": [made.collection.id], "job_types": ["function"], "slots": [9], "afters": [0]}

    def windows() -> list[tuple[object, object, object]]:
        found = claimer.execute(text.replace(counted, held_up).encode(), {**lane, "window": WINDOW_ROWS})
        return [(one.inputs, one.change, one.deleted) for one in found]

    holder = opened("holder")
    with holder.transaction():
        holder.execute("select pg_advisory_xact_lock(7)")
        found = beside(windows)
        wait_for_lock(connection, "autofill claimer")
        with opened("editor") as editor:
            editor.execute('update autofill.row set inputs = \'{"1": "new"}\', change = 5')
    assert found.result() == [({"1": "new"}, 5, False)]
