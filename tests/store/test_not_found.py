"""An answer that there is no value: stored as an answer, shown as what it is, ended, looked for again when asked."""

from cell_engine.estimate import estimate
from cell_engine.plan import plan
from cell_engine.store.database import Connection
from cell_engine.store.demands import RangeScope, dispatch
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import page, progress, recent_dispatches
from cell_engine.store.records import earlier_answers
from tests.engine import Claimer, Made, make, sheet

REASON = {"not_found": "the text names no date"}


def ask(connection: Connection, made: Made, only_if: list[str] | None) -> int:
    return dispatch(
        connection, made.collection.id, RangeScope(((1, 3),)), columns=[made.id("n")], only_if=only_if,
        force=True, reason="reprocess", actor="me",
    )  # fmt: skip


def answered(connection: Connection, claimer: Claimer, made: Made) -> None:
    """Row 1 has a value, row 2 none, row 3 an error."""
    for visit in sorted(claimer.claim(), key=lambda one: one.key.row_id):
        steps = plan(visit.row, made.version, visit.asked)
        changes: dict[str, object] = {
            1: {}, 2: {"details": REASON}, 3: {"error_class": "refused", "error": "no"}
        }[visit.key.row_id]  # fmt: skip
        value = "2024-01-01" if visit.key.row_id == 1 else None
        claimer.flush([claimer.answer(visit, made.id("n"), value, steps, **changes)])
        again = claimer.reread(visit)
        assert again is not None
        assert plan(again.row, made.version, again.asked).due == ()  # an answer, and current
        claimer.flush(releases=[claimer.release(again)])


def test_R7_not_found_is_stored_shown_and_has_ended(connection: Connection) -> None:
    made = make(connection, sheet("a", "n: a"), rows=[{"a": "x"}, {"a": "y"}, {"a": "z"}])
    claimer = Claimer(connection)
    answered(connection, claimer, made)
    cells = page(connection, made.collection.id)[1]
    assert [(one.value, one.status, one.details) for one in cells] == [
        ("2024-01-01", "ready", None), (None, "not_found", REASON), (None, "error", None),
    ]  # fmt: skip
    load = progress(connection, recent_dispatches(connection, made.collection.id)[-1].id)
    assert load is not None
    assert load.ended_at is not None
    assert load.outcomes == {"ready": 1, "not_found": 1, "refused": 1}
    assert broken_rules(connection) == {}
    # what was not found may be found, and the other way round; only a value is kept as an earlier answer of note
    ask(connection, made, None)
    (first, second, third) = sorted(claimer.claim(), key=lambda one: one.key.row_id)
    for visit, value, details in ((first, None, REASON), (second, "2025-01-01", None)):
        steps = plan(visit.row, made.version, visit.asked)
        claimer.flush([claimer.answer(visit, made.id("n"), value, steps, details=details)], [claimer.release(visit)])
    claimer.visit(third)
    cells = page(connection, made.collection.id)[1]
    assert [(one.value, one.status) for one in cells[:2]] == [(None, "not_found"), ("2025-01-01", "ready")]
    (earlier,) = earlier_answers(connection, made.collection.id, 2, made.id("n"))
    assert (earlier.was, earlier.details) == (None, REASON)


def test_only_what_was_not_found_is_looked_for_again(connection: Connection) -> None:
    made = make(connection, sheet("a", "n: a"), rows=[{"a": "x"}, {"a": "y"}, {"a": "z"}])
    claimer = Claimer(connection)
    answered(connection, claimer, made)
    scope, n = RangeScope(((1, 3),)), [made.id("n")]
    (dry,) = estimate(
        connection, made.collection, made.version, scope, columns=n, force=True, only_if=["not_found"]
    ).columns
    assert dry.cells == 1
    again = ask(connection, made, ["not_found"])
    visits = claimer.claim()
    assert [visit.key.row_id for visit in visits] == [2]
    assert claimer.visit(visits[0]) == ["n"]
    done = progress(connection, again)
    assert done is not None
    assert done.ended_at is not None
    assert done.outcomes == {"ready": 1}
    assert page(connection, made.collection.id)[1][1].status == "ready"
