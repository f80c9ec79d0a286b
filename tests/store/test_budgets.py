"""Budgets: what is charged to which, when they are reached, and how they let go."""

from typing import Any

import pytest

from cell_engine.plan import plan
from cell_engine.store import control, money, results
from cell_engine.store.budgets import enforce_all, left
from cell_engine.store.claims import Reading
from cell_engine.store.control import DispatchStateError
from cell_engine.store.database import Connection
from cell_engine.store.holds import Trip, active, lift, place
from cell_engine.store.reading import progress
from cell_engine.store.results import Flushed
from cell_engine.store.usage import roll_up
from tests.engine import Claimer, Made, make, sheet
from tests.store.conftest import Beside, Opened

SPEC = sheet("a", "b!llm: a", "c!llm: a", "d: a")


def loaded(connection: Connection, rows: int = 6) -> tuple[Made, Claimer, list[Reading]]:
    made = make(connection, SPEC, rows=[{"a": str(row)} for row in range(rows)])
    claimer = Claimer(connection)
    return made, claimer, sorted(claimer.claim(), key=lambda one: one.key.row_id)


def pay(claimer: Claimer, made: Made, reading: Reading, cost: int, column: str = "b") -> Flushed:
    """A flush of one answer that cost so much."""
    steps = plan(reading.row, made.version, reading.asked)
    return claimer.flush([claimer.answer(reading, made.id(column), "B", steps, model="m", tokens_in=1, cost=cost)])


def scope(made: Made, column: str | None = None) -> money.Scope:
    return money.Scope(1, made.collection.id, None if column is None else made.id(column))


def held(connection: Connection) -> list[tuple[Any, ...]]:
    return [(one.collection, one.column, one.reason) for one in active(connection)]


def test_without_budgets_nothing_is_left_to_be_looked_at(connection: Connection) -> None:
    made, claimer, (first, *_) = loaded(connection)
    assert pay(claimer, made, first, 5).left == []
    assert claimer.flush([claimer.answer(first, made.id("d"), "D", plan(first.row, made.version, {}))]).left is None


def test_each_budget_is_charged_for_what_is_its_own(connection: Connection) -> None:
    made, claimer, (first, second, third, *_) = loaded(connection)
    pay(claimer, made, first, 100)
    roll_up(connection)
    money.add_credit(connection, "test", 50, "anna")  # what was spent before is not its to pay
    money.set_budget(connection, scope(made, "b"), "ever", 1_000, "anna")
    money.set_budget(connection, scope(made, "c"), "day", 1_000, "anna")
    money.set_budget(connection, money.Scope(1), "ever", 1_000, "anna")
    pay(claimer, made, second, 10)
    pay(claimer, made, third, 7, "c")
    expected = {"credit": 17, "ever": 110 + 7, "day": 7, "column": 110}
    for _ in range(2):  # before it is rolled up, and after
        found = {
            "column" if one.period == "ever" and one.column_id else one.period: one.spent
            for one in left(connection, [made.collection.id])
        }
        assert found == expected
        assert roll_up(connection) in (0, 2)
    connection.execute("update autofill.usage set day = day - 1")
    assert {one.spent for one in left(connection, [made.collection.id]) if one.period == "day"} == {0}


def test_a_budget_holds_its_scope_at_the_flush_that_reaches_it_and_lets_go(connection: Connection) -> None:
    made, claimer, (first, second, third, *_) = loaded(connection)
    money.set_budget(connection, scope(made, "b"), "ever", 100, "anna")
    pay(claimer, made, first, 99)
    assert held(connection) == []
    flushed = pay(claimer, made, second, 1)
    assert flushed.left is not None
    assert [one.left for one in flushed.left] == [0]
    assert held(connection) == [("sheet", "b", "budget")]
    pay(claimer, made, third, 1)
    enforce_all(connection)
    assert held(connection) == [("sheet", "b", "budget")], "once"
    money.set_budget(connection, scope(made, "b"), "ever", 200, "anna")
    assert held(connection) == []


def test_a_budget_that_is_taken_away_lets_go(connection: Connection) -> None:
    made, claimer, (first, *_) = loaded(connection)
    money.set_budget(connection, scope(made), "ever", 1, "anna")
    pay(claimer, made, first, 1)
    assert held(connection) == [("sheet", None, "budget")]
    money.remove_budget(connection, scope(made), "ever", "anna")
    assert held(connection) == []


def test_one_set_below_what_is_spent_holds_at_once(connection: Connection) -> None:
    made, claimer, (first, *_) = loaded(connection)
    pay(claimer, made, first, 10)
    money.set_budget(connection, money.Scope(1), "ever", 10, "anna")
    assert held(connection) == [(None, None, "budget")]


def test_a_days_hold_is_over_at_midnight_unless_more_is_reached(connection: Connection) -> None:
    made, claimer, (first, second, *_) = loaded(connection)
    money.set_budget(connection, money.Scope(1), "day", 10, "anna")
    money.add_credit(connection, "test", 15, "anna")
    pay(claimer, made, first, 10)
    (hold,) = active(connection)
    assert hold.expires_at is not None
    assert (hold.expires_at.hour, hold.expires_at.minute) == (0, 0)
    pay(claimer, made, second, 5)
    (hold,) = active(connection)
    assert (hold.expires_at, "credit" in hold.message) == (None, True)
    connection.execute("update autofill.usage_delta set day = day - 1")
    enforce_all(connection)
    assert len(active(connection)) == 1
    money.add_credit(connection, "test", 100, "anna")
    assert held(connection) == []


def test_two_flushes_at_once_that_reach_it_together_are_not_missed(
    connection: Connection, opened: Opened, beside: Beside
) -> None:
    """Neither sees the other's answers while both are open; the later to look sees both."""
    made, claimer, (first, second, *_) = loaded(connection)
    money.set_budget(connection, scope(made), "ever", 10, "anna")
    other = opened("other")
    steps = plan(second.row, made.version, second.asked)
    answer = claimer.answer(second, made.id("b"), "B", steps, model="m", tokens_in=1, cost=5)

    with other.transaction():
        results._flush(other, claimer.id, [answer], [], None)
        assert pay(claimer, made, first, 5).left is not None
        assert held(connection) == []
    results.flush(other, claimer.id, [claimer.answer(second, made.id("c"), "C", steps, model="m", cost=1)], [])
    assert held(connection) == [("sheet", None, "budget")]


def test_a_hold_for_quota_stays_and_the_budgets_follows_it(connection: Connection) -> None:
    made, claimer, (first, *_) = loaded(connection)
    money.set_budget(connection, scope(made), "ever", 10, "anna")
    place(connection, Trip(made.collection.id, "llm", None, "quota", "no more"))
    pay(claimer, made, first, 10)
    (hold,) = active(connection)
    assert hold.reason == "quota"
    lift(connection, [hold.id], "anna")
    enforce_all(connection)
    assert held(connection) == [("sheet", None, "budget")]


def test_a_dispatch_is_paused_at_its_cap_and_goes_on_when_that_is_raised(connection: Connection) -> None:
    made, claimer, (first, second, *_) = loaded(connection)
    asked = first.dispatch_id
    money.cap_dispatch(connection, asked, 10)
    pay(claimer, made, first, 4)
    roll_up(connection)
    pay(claimer, made, second, 6)
    now = progress(connection, asked)
    assert now is not None
    assert now.paused_at is not None
    assert "budget set" in str(now.pause_reason)
    assert (now.cost, now.max_cost) == (10, 10)
    with pytest.raises(DispatchStateError, match="has cost what it may"):
        control.resume(connection, asked)
    money.cap_dispatch(connection, asked, 11)
    now = progress(connection, asked)
    assert now is not None
    assert (now.paused_at, now.pause_reason) == (None, None)
    control.pause(connection, asked)
    money.cap_dispatch(connection, asked, 100)
    now = progress(connection, asked)
    assert now is not None
    assert now.paused_at is not None, "a person's pause is that person's to end"
    control.resume(connection, asked)


def test_of_two_first_credits_both_count(connection: Connection, opened: Opened, beside: Beside) -> None:
    make(connection, SPEC)
    one, two = opened("one"), opened("two")
    futures = [beside(money.add_credit, each, "test", 5, "anna") for each in (one, two)]
    for future in futures:
        future.result(20)
    assert [each.amount for each in money.budgets(connection) if each.period == "credit"] == [10]
    assert [each.amount for each in money.credits(connection)] == [5, 5]
