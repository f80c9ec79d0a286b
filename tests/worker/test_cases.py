"""What went wrong elsewhere (docs/cases.md), where no rule's own test holds it: leases, retries, and what cannot be
stored."""

import threading
from collections import Counter
from collections.abc import Callable

import psycopg
import pytest

from cell_engine.kinds.base import Answer, Call, Failure, Outcome
from cell_engine.kinds.function import FunctionKind
from cell_engine.store.database import Connection, connect
from cell_engine.store.reading import page, progress, recent_dispatches
from cell_engine.store.upkeep import keep_up
from tests import functions
from tests.engine import Made, eventually, make, running_worker
from tests.store.conftest import Beside, beside

__all__ = ["beside"]

ENDED = "select ended_at is not null from autofill.dispatch where id = %s"
LEASE = 0.9
SPEC = """
namespace: test
name: cases
columns:
  - {name: a, type: text}
  - name: b
    type: text
    kind: function
    deps: [a]
    attempts: 3
    timeout: 600
    function: {name: "tests.functions:held"}
"""


def answering(monkeypatch: pytest.MonkeyPatch, answer: Callable[[int, int], Outcome]) -> None:
    """Calls are answered by `answer(row id, the how many-th call of the row)`; failed ones are soon tried again."""
    calls: Counter[int] = Counter()

    async def compute(self: FunctionKind, call: Call) -> Outcome:
        calls[call.row_id] += 1
        return answer(call.row_id, calls[call.row_id])

    monkeypatch.setattr(FunctionKind, "compute", compute)
    monkeypatch.setattr("cell_engine.worker.outcomes.BACKOFF_SECONDS", (0.01, 0.02))


def worked_off(connection: Connection, database: str, rows: int) -> Made:
    made = make(connection, SPEC, rows=[{"a": f"x{row}"} for row in range(rows)])
    load = recent_dispatches(connection, made.collection.id)[0].id
    with running_worker(database):
        eventually(connection, ENDED, load)
    return made


def booked(connection: Connection) -> Counter[str]:
    found = connection.execute("select coalesce(error_class, outcome) as name, row_ids from autofill.attempt")
    return Counter(name for name, row_ids in found for _ in row_ids)


def test_a_worker_beats_until_its_last_answer_is_stored(connection: Connection, database: str, beside: Beside) -> None:
    made = make(connection, SPEC, rows=[{"a": "x"}])
    load = recent_dispatches(connection, made.collection.id)[0].id
    functions.HOLD.clear()
    over = threading.Event()

    def janitor() -> int:
        """Rounds of the janitor until the worker has gone; how many workers it took for dead."""
        with connect(database, application="janitor") as own:
            taken = 0
            while not over.wait(0.02):
                taken += keep_up(own).workers
            return taken

    taken = beside(janitor)
    try:
        with running_worker(database, lease=LEASE, grace=30.0):
            eventually(connection, "select computing is not null from autofill.work")
            # A call that is longer than its lease is nobody else's: three leases, by the worker's own beats.
            for _ in range(9):
                (beat,) = connection.execute("select beat_at from autofill.worker").fetchone() or (None,)
                eventually(connection, "select beat_at > %s from autofill.worker", beat)
            threading.Timer(LEASE * 4, functions.HOLD.set).start()
    finally:
        over.set()
    assert taken.result() == 0
    # It was told to stop, and beat on while the call ran to its end.
    found = progress(connection, load)
    assert found is not None
    assert (found.outcomes, found.attempts) == ({"ready": 1}, {"succeeded": 1})


def test_rate_limits_cost_no_attempt(connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, lambda _, call: Failure("rate_limited", "slow down") if call <= 5 else Answer("b"))
    made = worked_off(connection, database, rows=3)
    _, cells = page(connection, made.collection.id)
    assert [cell.status for cell in cells] == ["ready"] * 3
    assert booked(connection) == {"rate_limited": 15, "succeeded": 3}


def test_a_failure_that_stays_transient_is_tried_as_often_as_its_column_says(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, lambda row, _: Failure("transient", "gone") if row == 1 else Answer("b"))
    made = worked_off(connection, database, rows=2)
    _, cells = page(connection, made.collection.id)
    assert [(cell.status, cell.error_class) for cell in cells] == [("error", "transient"), ("ready", None)]
    assert booked(connection) == {"transient": 3, "succeeded": 1}


def test_an_answer_that_the_database_cannot_store_costs_no_other(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, lambda row, _: Answer("\0" if row == 7 else "b"))
    made = worked_off(connection, database, rows=50)
    _, cells = page(connection, made.collection.id, limit=100)
    assert Counter(cell.status for cell in cells) == {"ready": 49, "error": 1}
    assert (cells[6].error_class, "cannot store the answer" in str(cells[6].error)) == ("schema", True)
    assert booked(connection) == {"succeeded": 49, "schema": 1}


def test_a_claim_that_hangs_is_given_up_and_the_worker_goes_on(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cell_engine.worker.link.STATEMENT_TIMEOUT", 0.3)
    functions.HOLD.set()
    with psycopg.connect(database) as holder, running_worker(database, lease=30):
        eventually(connection, "select exists (select from autofill.worker)")
        holder.execute("lock table autofill.sweep in access exclusive mode")
        waiting = (
            "select exists (select from pg_stat_activity where application_name = 'autofill worker claim' "
            "and wait_event_type = 'Lock' and datname = current_database())"
        )
        eventually(connection, waiting)
        eventually(connection, f"select not ({waiting[7:]})")
        holder.rollback()
        made = make(connection, SPEC, rows=[{"a": "x"}])
        load = recent_dispatches(connection, made.collection.id)[0].id
        eventually(connection, ENDED, load)
