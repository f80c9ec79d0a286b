"""What calls cost: on the cell, the attempt and the dispatch, and in the usage that is rolled up."""

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import psycopg
import pytest

from cell_engine.plan import plan
from cell_engine.store import usage as usage_module
from cell_engine.store.claims import Reading
from cell_engine.store.database import Connection
from cell_engine.store.reading import progress
from cell_engine.store.results import Result
from cell_engine.store.usage import Usage, roll_up, usage
from tests.engine import Claimer, Made, make, sheet
from tests.store.conftest import Beside, Opened

SPEC = sheet("a", "b!llm: a", "c: b")


def answered(claimer: Claimer, made: Made, reading: Reading, **more: Any) -> Result:
    fields: dict[str, Any] = {
        "model": "m", "tokens_in": 100, "tokens_cached": 40, "tokens_out": 20, "tokens_reasoning": 5, "cost": 7,
    }  # fmt: skip
    steps = plan(reading.row, made.version, reading.asked)
    return claimer.answer(reading, made.id("b"), "B", steps, **(fields | more))


def visited(connection: Connection, rows: int = 3) -> tuple[Made, Claimer, list[Reading]]:
    made = make(connection, SPEC, rows=[{"a": str(row)} for row in range(rows)])
    claimer = Claimer(connection)
    return made, claimer, sorted(claimer.claim(), key=lambda one: one.key.row_id)


def test_cost_is_on_the_cell_the_attempt_and_the_dispatch(connection: Connection) -> None:
    made, claimer, (first, second, third) = visited(connection)
    claimer.flush([answered(claimer, made, first), answered(claimer, made, second, cost=11)])
    claimer.flush([answered(claimer, made, third, error_class="schema", error="no", cost=None)])
    cells = connection.execute("select tokens_in, tokens_out, cost from autofill.cell order by row_id").fetchall()
    assert [tuple(one) for one in cells] == [(100, 20, 7), (100, 20, 11), (100, 20, None)]
    attempts = connection.execute(
        "select outcome, tokens_in, tokens_cached, tokens_out, tokens_reasoning, cost from autofill.attempt order by id"
    ).fetchall()
    assert [tuple(one) for one in attempts] == [("succeeded", 200, 80, 40, 10, 18), ("failed", 100, 40, 20, 5, None)]
    now = progress(connection, first.dispatch_id)
    assert now is not None
    assert (now.cost, now.unpriced, now.tokens_cached, now.tokens_reasoning) == (18, 1, 120, 15)


def test_a_known_and_an_unknown_cost_are_not_added_up(connection: Connection) -> None:
    made, claimer, (first, second, _) = visited(connection)
    claimer.flush([answered(claimer, made, first), answered(claimer, made, second, cost=None)])
    costs = connection.execute("select cost from autofill.attempt order by cost nulls last").fetchall()
    assert [one.cost for one in costs] == [7, None]


def test_functions_leave_no_usage(connection: Connection) -> None:
    make(connection, sheet("a", "b: a"), rows=[{"a": "x"}])
    Claimer(connection).work_off()
    assert connection.execute("select from autofill.usage_delta").fetchall() == []
    assert connection.execute("select tokens_in, cost from autofill.cell").fetchall() == [(None, None)]


def test_failed_tries_and_answers_that_came_too_late_are_used_too(connection: Connection) -> None:
    made, claimer, (first, second, _) = visited(connection)
    lost = replace(answered(claimer, made, second), token=first.token._replace(claim=99))
    retried = answered(claimer, made, first, error_class="transient", error="away", retry=True)
    claimer.flush([retried, lost])
    (used,) = usage(connection, [])
    assert (used.calls, used.failed, used.cost, used.unpriced) == (2, 1, 14, 0)


def test_usage_is_the_same_before_and_after_it_is_rolled_up(connection: Connection) -> None:
    made, claimer, (first, second, third) = visited(connection)
    claimer.flush([answered(claimer, made, first), answered(claimer, made, second, model="n", cost=None)])
    by = ["collection", "column", "model", "day"]
    today = connection.execute("select (now() at time zone 'UTC')::date as day").fetchone()
    assert today is not None
    expected = [
        Usage("test", "sheet", "b", "m", today.day, 1, 0, 100, 40, 20, 5, 7, 0),
        Usage("test", "sheet", "b", "n", today.day, 1, 0, 100, 40, 20, 5, 0, 1),
    ]
    assert usage(connection, by) == expected
    assert roll_up(connection) == 2
    assert connection.execute("select from autofill.usage_delta").fetchall() == []
    assert usage(connection, by) == expected
    claimer.flush([answered(claimer, made, third)])
    assert roll_up(connection) == 1
    assert [(one.model, one.calls, one.cost) for one in usage(connection, by)] == [("m", 2, 14), ("n", 1, 0)]
    totals = connection.execute("select cost from autofill.usage_total").fetchall()
    assert [one.cost for one in totals] == [14]
    spent = connection.execute("select spent from autofill.dispatch where id = %s", [first.dispatch_id]).fetchone()
    assert spent is not None
    assert spent.spent == 14


def test_usage_is_split_and_bounded_as_asked(connection: Connection) -> None:
    made, claimer, (first, *_) = visited(connection)
    claimer.flush([answered(claimer, made, first)])
    assert [one.calls for one in usage(connection, ["model"], namespace="test", collection="sheet")] == [1]
    assert usage(connection, ["model"], namespace="other") == []
    assert usage(connection, ["model"], since=date.today() + timedelta(days=2)) == []


def test_a_roll_up_takes_bounded_steps(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_module, "ROLL_BATCH", 2)
    made, claimer, readings = visited(connection)
    for one in readings:
        claimer.flush([answered(claimer, made, one)])
    assert [roll_up(connection), roll_up(connection), roll_up(connection)] == [2, 1, 0]


def test_a_flush_waits_for_no_roll_up_and_loses_nothing_to_it(
    connection: Connection, opened: Opened, beside: Beside
) -> None:
    made, claimer, (first, second, _) = visited(connection)
    claimer.flush([answered(claimer, made, first)])
    roller = opened("roller")
    with roller.transaction():
        assert roll_up(roller) == 1
        assert roll_up(opened("another")) == 0, "one at a time"
        claimer.flush([answered(claimer, made, second)])
        assert [one.cost for one in usage(connection, [])] == [14], "a snapshot before its commit"
    assert [one.cost for one in usage(connection, [])] == [14], "and one after it"


def test_what_is_not_stored_is_not_billed(connection: Connection) -> None:
    made, claimer, (first, second, _) = visited(connection)
    with pytest.raises(psycopg.Error):
        claimer.flush([answered(claimer, made, first), answered(claimer, made, second, fingerprint=None, version="x")])
    assert usage(connection, []) == []
