"""Answers under review: stored and not shown, decided by people or in time, and what reads them rests until then."""

from datetime import timedelta

import pytest

from cell_engine.plan import plan
from cell_engine.specs.text import Json
from cell_engine.store import changes
from cell_engine.store.database import Connection
from cell_engine.store.demands import RowScope, dispatch
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import page, progress, status_counts
from cell_engine.store.reviews import (
    TIME_OUT,
    Filter,
    Proposal,
    decide,
    decide_overdue,
    decide_these,
    decisions,
    proposals,
)
from cell_engine.worker.outcomes import review
from tests.engine import Claimer, Made, make, sheet, wait_for_lock
from tests.store.conftest import Beside, Opened

SHEET = sheet("a", "b*: a", "c: b", "d: c?", "n/never: b")


def shown(connection: Connection, made: Made, row: int = 1) -> dict[str, tuple[str, Json]]:
    """By column: status, and the value shown; of one under review the answer that is proposed, in brackets."""
    _, cells = page(connection, made.collection.id, after=row - 1, limit=1)
    names = {id: one.name for id, one in made.version.by_id.items()}
    return {
        names[one.column_id]: (one.status, one.value if one.proposed is None else f"[{one.proposed}]") for one in cells
    }


def waiting(connection: Connection, made: Made, **fields: object) -> list[Proposal]:
    return proposals(connection, made.collection.id, Filter((made.id("b"),), **fields))  # type: ignore[arg-type]


def accept(connection: Connection, made: Made, accepted: bool = True, why: str | None = None) -> int:
    which = Filter((made.id("b"),))
    return decide(connection, made.collection.id, which, accepted=accepted, actor="me", why=why).cells


@pytest.fixture
def made(connection: Connection) -> Made:
    """A row whose b is proposed; what reads it rests."""
    made = make(connection, SHEET, rows=[{"a": "x"}])
    assert Claimer(connection).work_off() == ["b"]
    return made


def test_an_answer_under_review_is_stored_and_not_shown_and_its_dependents_wait(
    connection: Connection, made: Made
) -> None:
    assert shown(connection, made) == {
        "b": ("proposed", "[b(x)]"),
        "c": ("waiting", None),
        "d": ("waiting", None),
        "n": ("empty", None),
    }
    view = connection.execute("select b, c from autofill_views.test__sheet").fetchone()
    assert view == (None, None)
    assert status_counts(connection, made.collection.id)[made.id("b")] == {"proposed": 1}
    open_ = connection.execute("select count(*) from autofill.dispatch where ended_at is null").fetchone()
    assert open_ == (0,), "R7: nothing is left open by a review"
    assert broken_rules(connection) == {}


def test_R6_accepting_shows_the_answer_and_computes_what_reads_it(connection: Connection, made: Made) -> None:
    assert accept(connection, made) == 1
    assert shown(connection, made)["b"] == ("ready", "b(x)")
    assert Claimer(connection).work_off() == ["c", "d"]
    assert {name: one[0] for name, one in shown(connection, made).items()} == {
        "b": "ready", "c": "ready", "d": "ready", "n": "empty",
    }  # fmt: skip
    (decision,) = decisions(connection, made.collection.id)
    assert (decision.accepted, decision.actor, decision.value, decision.why) == (True, "me", "b(x)", None)
    found = progress(connection, decision.dispatch_id)
    assert found is not None
    assert (found.reason, found.actor, found.outcomes, found.ended_at is not None) == (
        "accept",
        "me",
        {"ready": 2},
        True,
    )
    person = connection.execute("select user_set, user_actor from autofill.cell where column_id = %s", [made.id("b")])
    assert person.fetchone() == (False, None), "R5: it stays the AI's answer"
    assert accept(connection, made) == 0, "there is nothing left to accept"
    count = connection.execute("select count(*) from autofill.dispatch where reason = 'accept'").fetchone()
    assert count == (1,)


def test_rejecting_leaves_the_cell_at_rest_without_a_value_until_it_is_asked_for(
    connection: Connection, made: Made
) -> None:
    assert accept(connection, made, accepted=False, why="wrong party") == 1
    claimer = Claimer(connection)
    assert claimer.work_off() == ["d"], "d goes without c, which is blocked"
    found = shown(connection, made)
    assert found["b"] == ("rejected", None)
    assert found["c"] == ("blocked", None)
    (error,) = connection.execute("select error from autofill.cell where error_class = 'rejected'").fetchone() or ("",)
    assert error == "rejected by me: wrong party"
    assert claimer.work_off() == []
    dispatch(
        connection, made.collection.id, RowScope((1,)), columns=[made.id("b")], reason="reprocess", actor="me"
    )  # fmt: skip
    assert claimer.work_off(lambda _: "another") == ["b"]
    found = shown(connection, made)
    assert found["b"] == ("proposed", "[another]")
    assert found["c"] == ("waiting", None), "its input is on its way again"
    assert accept(connection, made) == 1
    assert claimer.work_off() == ["c", "d"]
    assert broken_rules(connection) == {}


def test_an_edit_of_an_input_replaces_the_proposal(connection: Connection, made: Made) -> None:
    (old,) = waiting(connection, made)
    changes.edit(connection, made.collection.id, 1, {made.id("a"): "y"}, actor="me")
    assert Claimer(connection).work_off() == ["b"]
    assert shown(connection, made)["b"] == ("proposed", "[b(y)]")
    late = decide_these(connection, made.collection.id, [old], accepted=True, actor="me")
    assert (late.cells, late.dispatches) == (0, []), "what was seen is not what is there"
    assert shown(connection, made)["b"] == ("proposed", "[b(y)]")
    assert decisions(connection, made.collection.id) == []


def test_R10_an_answer_equal_to_the_accepted_one_needs_no_review(connection: Connection, made: Made) -> None:
    accept(connection, made)
    claimer = Claimer(connection)
    claimer.work_off()
    changes.edit(connection, made.collection.id, 1, {made.id("a"): "y"}, actor="me")
    assert claimer.work_off() == ["b"]
    (proposal,) = waiting(connection, made)
    assert (proposal.value, proposal.accepted) == ("b(y)", "b(x)")
    assert shown(connection, made)["c"] == ("waiting", "c(b(x))"), "what was computed stays until there is more"
    changes.edit(connection, made.collection.id, 1, {made.id("a"): "z"}, actor="me")
    assert claimer.work_off(lambda _: "b(x)") == ["b"], "as accepted before: nothing follows"
    assert {name: one[0] for name, one in shown(connection, made).items() if name != "n"} == {
        "b": "ready", "c": "ready", "d": "ready",
    }  # fmt: skip
    assert broken_rules(connection) == {}


def test_that_nothing_was_found_is_held_and_shown_when_it_is_accepted(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    changes.edit(connection, made.collection.id, 1, {made.id("a"): "y"}, actor="me")
    (reading,) = claimer.claim()
    steps = plan(reading.row, made.version, reading.asked)
    reason = {"not_found": "It does not say."}
    result = claimer.answer(reading, made.id("b"), None, steps, details=reason)
    review(made.version.by_name["b"], reading, result)
    claimer.flush([result])
    claimer.flush(releases=[claimer.release(reading)])
    assert shown(connection, made)["b"] == ("proposed", None)
    (proposed,) = waiting(connection, made)
    assert (proposed.value, proposed.details) == (None, reason)
    assert accept(connection, made) == 1
    assert shown(connection, made)["b"] == ("not_found", None)
    claimer.work_off()
    assert shown(connection, made)["c"][0] == "blocked", "it was not found, and c does not say what then"
    assert broken_rules(connection) == {}


def test_R5_an_edit_pins_and_what_the_ai_proposed_stays_beneath(connection: Connection, made: Made) -> None:
    changes.edit(connection, made.collection.id, 1, {made.id("b"): "mine"}, actor="me")
    assert waiting(connection, made) == []
    assert accept(connection, made) == 0
    assert shown(connection, made)["b"] == ("overridden", "mine")
    assert Claimer(connection).work_off() == ["c", "d"]
    changes.reset(connection, made.collection.id, 1, [made.id("b")], actor="me")
    Claimer(connection).work_off()
    assert shown(connection, made)["b"] == ("proposed", "[b(x)]")
    assert shown(connection, made)["c"] == ("waiting", "c(mine)")


def test_an_error_after_a_proposal_is_an_error_and_the_next_answer_is_held_again(
    connection: Connection, made: Made
) -> None:
    claimer = Claimer(connection)

    def again(**outcome: object) -> None:
        dispatch(
            connection, made.collection.id, RowScope((1,)), columns=[made.id("b")], force=True, reason="r", actor="me"
        )  # fmt: skip
        (reading,) = claimer.claim()
        steps = plan(reading.row, made.version, reading.asked)
        claimer.flush([claimer.answer(reading, made.id("b"), outcome.pop("value", None), steps, **outcome)])
        rest = claimer.reread(reading)
        assert rest is not None
        claimer.visit(rest)

    again(error_class="refused", error="no", state=None)
    assert shown(connection, made)["b"] == ("error", None)
    again(value="b(x)")
    assert shown(connection, made)["b"] == ("proposed", "[b(x)]"), "never accepted, though it was there before"
    assert broken_rules(connection) == {}


def test_R6_a_force_that_waits_for_a_review_counts_when_it_has_ended(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    wanted = [made.id("c"), made.id("n"), made.id("d")]
    made_ = dispatch(
        connection, made.collection.id, RowScope((1,)), columns=wanted, force=True, reason="r", actor="me"
    )  # fmt: skip
    assert claimer.work_off() == []
    found = progress(connection, made_)
    assert found is not None
    assert (found.outcomes, found.ended_at is not None) == ({"waiting": 3}, True), "R7: it does not stay open for days"
    accept(connection, made)
    assert sorted(claimer.work_off()) == ["c", "d", "n"]


def test_R6_what_is_computed_only_when_asked_and_was_asked_for_behind_a_review_is_computed_when_it_has_ended(
    connection: Connection, made: Made
) -> None:
    claimer = Claimer(connection)
    made_ = dispatch(
        connection, made.collection.id, RowScope((1,)), columns=[made.id("n")], force=False, reason="r", actor="me"
    )  # fmt: skip
    assert claimer.work_off() == []
    found = progress(connection, made_)
    assert found is not None
    assert (found.outcomes, found.ended_at is not None) == ({"waiting": 1}, True)
    assert shown(connection, made)["n"] == ("waiting", None)
    accept(connection, made)
    assert sorted(claimer.work_off()) == ["c", "d", "n"]
    accept(connection, made)
    assert claimer.work_off() == [], "it was asked for once"
    assert broken_rules(connection) == {}


def test_asking_for_a_proposed_cell_again_does_not_pay_twice(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    scope = RowScope((1,))
    dispatch(connection, made.collection.id, scope, columns=[made.id("b")], reason="r", actor="me")
    assert claimer.work_off() == []
    dispatch(connection, made.collection.id, scope, columns=[made.id("b")], force=True, reason="r", actor="me")
    assert claimer.work_off() == ["b"]


def test_a_time_out_decides_as_the_column_says_and_once(connection: Connection) -> None:
    spec = SHEET.replace("review: required", "review: {within: 3d, then: accept}")
    made = make(connection, spec, rows=[{"a": "x"}, {"a": "y"}])
    Claimer(connection).work_off()
    assert decide_overdue(connection) == 0
    connection.execute(
        "update autofill.cell set computed_at = computed_at - %s where row_id = 1 and error_class = 'proposed'",
        [timedelta(days=3, seconds=1)],
    )
    assert decide_overdue(connection) == 1
    assert decide_overdue(connection) == 0
    assert [shown(connection, made, row)["b"][0] for row in (1, 2)] == ["ready", "proposed"]
    (decision,) = decisions(connection, made.collection.id)
    assert (decision.row_id, decision.accepted, decision.actor) == (1, True, TIME_OUT)
    assert Claimer(connection).work_off() == ["c", "d"]


def test_by_filter_of_rows_and_values_and_more_than_one_go(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cell_engine.store.reviews.CHUNK", 2)
    made = make(connection, SHEET, rows=[{"a": value} for value in "xyxyx"])
    Claimer(connection).work_off()
    assert [one.row_id for one in waiting(connection, made, ranges=((2, 3), (5, 5)))] == [2, 3, 5]
    assert [one.row_id for one in waiting(connection, made, value="b(y)")] == [2, 4]
    which = Filter((made.id("b"),), value="b(x)")
    done = decide(connection, made.collection.id, which, accepted=True, actor="me")
    assert (done.cells, len(done.dispatches)) == (3, 2)
    priorities = connection.execute("select row_id, priority::text from autofill.work order by row_id").fetchall()
    assert priorities == [(1, "sweep"), (3, "sweep"), (5, "sweep")], "many hold up nobody's edit"
    assert [one.row_id for one in waiting(connection, made)] == [2, 4]


def test_deleted_rows_wait_for_nobody(connection: Connection, made: Made) -> None:
    seen = waiting(connection, made)
    connection.execute("update autofill.row set deleted_at = now()")
    assert waiting(connection, made) == []
    assert decide_these(connection, made.collection.id, seen, accepted=True, actor="me").cells == 0


def test_two_that_decide_at_once_decide_once(
    connection: Connection, made: Made, opened: Opened, beside: Beside
) -> None:
    seen = waiting(connection, made)
    other = opened("other")
    with connection.transaction():
        first = decide_these(connection, made.collection.id, seen, accepted=True, actor="me")
        late = beside(decide_these, other, made.collection.id, seen, accepted=False, actor="you")
        wait_for_lock(connection, "autofill other")
    assert (first.cells, late.result(20).cells) == (1, 0)
    assert shown(connection, made)["b"] == ("ready", "b(x)")
    assert [one.actor for one in decisions(connection, made.collection.id)] == ["me"]
