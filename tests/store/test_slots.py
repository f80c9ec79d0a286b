"""R4: slots in flight never exceed the cap in force, are never lost, and waiting for one holds up nobody."""

from typing import Any

import psycopg
import pytest

from cell_engine.store.changes import edit
from cell_engine.store.claims import widen
from cell_engine.store.database import Connection, connect
from cell_engine.store.demands import RowScope, dispatch
from cell_engine.store.results import Flushed, flush
from cell_engine.worker import finalizer
from tests import functions
from tests.engine import Claimer, eventually, make, running_worker, wait_for_lock
from tests.store.conftest import Opened


def test_mechanic_5_widening_a_visit_does_not_wait_for_an_open_edit(
    connection: Connection, database: str, opened: Opened
) -> None:
    made = make(connection, rows=[{"a": "x"}])
    editor = opened("editor")
    with connect(database, application="claimer", statement_timeout=2) as claiming:
        claimer = Claimer(claiming)
        (visit,) = claimer.claim()
        with editor.transaction():
            edit(editor, made.collection.id, 1, {made.id("a"): "open"}, actor="me")
            widen(claiming, claimer.id, [(visit.key, visit.token.claim)])


SIDE_BY_SIDE = """
namespace: test
name: widened
columns:
  - {name: a, type: text}
  - {name: n, type: text}
  - {name: slow, type: text, kind: function, deps: [a], function: {name: "tests.functions:held"}}
  - {name: quick, type: text, kind: function, deps: [n], function: {name: "tests.functions:upper_n"}}
"""


def _end_claim_connection(connection: Connection) -> None:
    wait_for_lock(connection, "autofill worker claim")
    connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where datname = current_database() and application_name = 'autofill worker claim'"
    )


def test_mechanic_1_a_visit_whose_widening_failed_gets_its_slot_later(
    connection: Connection, database: str, opened: Opened
) -> None:
    functions.HOLD.clear()
    made = make(connection, SIDE_BY_SIDE, rows=[{"a": "x", "n": "y"}])
    holder = opened("holder")
    with running_worker(database):
        try:
            eventually(connection, "select computing is not null from autofill.work")
            with holder.transaction():
                holder.execute("select from autofill.slot for update")
                edit(connection, made.collection.id, 1, {made.id("n"): "edited"}, actor="me")
                _end_claim_connection(connection)
            query = "select exists (select from autofill.cell where column_id = %s)"
            eventually(connection, query, made.id("quick"), seconds=5)
        finally:
            functions.HOLD.set()


def test_R1_a_failed_widening_gives_up_no_visit_in_flight(
    connection: Connection, database: str, opened: Opened
) -> None:
    functions.HOLD.clear()
    made = make(connection, SIDE_BY_SIDE, rows=[{"a": "x", "n": "y"}], demand=False)
    worker, claims = opened("holder of the worker"), opened("holder of the claim lock")
    with running_worker(database):
        try:
            eventually(connection, "select exists (select from autofill.worker)")
            with worker.transaction():
                with claims.transaction():
                    claims.execute("select pg_advisory_xact_lock(hashtext('autofill.claim'))")
                    both = [made.id("slow"), made.id("quick")]
                    dispatch(connection, made.collection.id, RowScope((1,)), columns=both, reason="one", actor="me")
                    worker.execute("select from autofill.worker for no key update")
                # It has its quota, and takes no rows yet.
                eventually(connection, "select exists (select from autofill.slot where held > 0)")
                claims.execute("begin")
                claims.execute("select pg_advisory_xact_lock(hashtext('autofill.claim'))")
            # It takes the row, calls `slow`, and wants a slot for `quick`.
            eventually(connection, "select state = 'computing' from autofill.work")
            _end_claim_connection(connection)
            claims.execute("rollback")
            eventually(connection, "select exists (select from autofill.cell)", seconds=5)
        finally:
            functions.HOLD.set()
        eventually(connection, "select not exists (select from autofill.work)")
    calls = connection.execute("select outcome from autofill.attempt order by id").fetchall()
    assert [one.outcome for one in calls] == ["succeeded", "succeeded"]


def test_R4_a_commit_that_the_worker_never_learns_of_costs_no_slot(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[str] = []

    def flush_and_lose_the_answer(connection: Connection, *batch: Any) -> Flushed:
        flushed = flush(connection, *batch)
        if not lost and flushed.freed:
            lost.append("once")
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return flushed

    monkeypatch.setattr(finalizer, "flush", flush_and_lose_the_answer)
    make(connection, rows=[{"a": "x"}])
    with running_worker(database):
        eventually(connection, "select count(*) = 2 from autofill.cell")
        make(connection, rows=[{"a": "y"}], key="second")
        eventually(connection, "select count(*) = 4 from autofill.cell")
        assert lost
        # its claims give back what came free: soon it holds none
        eventually(connection, "select coalesce(sum(held), 0) = 0 from autofill.slot", seconds=5)
