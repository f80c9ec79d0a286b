"""Mechanic 16, R1 and R2: workers that die, are taken for dead, or leave; what they had is done, once, by others."""

import psycopg
import pytest

from cell_engine.store.claims import Token, WorkerEndedError, claim, goodbye, recover
from cell_engine.store.database import Connection
from cell_engine.store.demands import RowScope, dispatch
from cell_engine.store.upkeep import keep_up
from tests.engine import Claimer, eventually, make, running_worker, wait_for_lock
from tests.store.conftest import Beside, Opened


def test_R2_a_worker_that_was_ended_learns_it_from_its_next_claim(connection: Connection) -> None:
    make(connection, rows=[{"a": "x"}])
    claimer = Claimer(connection, lease=0)
    keep_up(connection)
    with pytest.raises(WorkerEndedError):
        claimer.claim()


def test_R6_a_worker_taken_for_dead_starts_afresh(connection: Connection, database: str) -> None:
    made = make(connection, rows=[{"a": "x"}], demand=False)
    with running_worker(database):
        eventually(connection, "select count(*) = 1 from autofill.worker")
        connection.execute("update autofill.worker set beat_at = '2000-01-01', lease = '0 s'")
        # it is passed over while a claim of its own holds it
        assert any(keep_up(connection).workers == 1 for _ in range(100))
        make(connection, rows=[{"a": "y"}], key="second")
        eventually(
            connection,
            "select count(*) = 2 from autofill.cell where collection_id = %s",
            made.collection.id,
            seconds=5,
        )


def test_R6_what_a_leaving_worker_could_not_hand_back_is_reclaimed(connection: Connection) -> None:
    make(connection, rows=[{"a": "x"}])
    leaving = Claimer(connection)
    assert len(leaving.claim()) == 1
    goodbye(connection, leaving.id)
    keep_up(connection)
    assert Claimer(connection).work_off() == ["b", "c"]


def test_R6_a_claim_that_commits_after_its_worker_lost_it_is_undone_too(connection: Connection, opened: Opened) -> None:
    make(connection, rows=[{"a": "x"}])
    claimer = Claimer(connection)
    lost = opened("lost")
    token = Token(claimer.id, 1)
    # The connection is gone for the worker; the server has yet to commit what it sent last.
    with lost.transaction():
        assert len(claim(lost, token, ["function"], 10, 10, {}).visits) == 1
        try:
            with connection.transaction():
                connection.execute("set local lock_timeout = '1s'")
                recover(connection, claimer.id, token.claim)
            recovered = True
        except psycopg.errors.LockNotAvailable:  # waiting for the claim is as good
            recovered = False
    if not recovered:
        recover(connection, claimer.id, token.claim)
    assert connection.execute("select count(*) from autofill.work where state = 'computing'").fetchone() == (0,)


def test_mechanic_4_undoing_a_claim_never_deadlocks_with_demand_for_its_rows(
    connection: Connection, opened: Opened, beside: Beside
) -> None:
    made = make(connection, rows=[{"a": "x"}, {"a": "y"}])
    claimer = Claimer(connection)
    assert len(claimer.claim()) == 2

    def demand(connection: Connection, *rows: int) -> int:
        return dispatch(connection, made.collection.id, RowScope(rows), reason="reprocess", actor="me")

    for row in (2, 1):  # their work lies in this order in the table, and in the index that finds it
        demand(connection, row)
    holder, undoer, demander = opened("holder"), opened("undoer"), opened("demander")
    with holder.transaction():
        holder.execute("select from autofill.work where row_id = 2 for update")
        undone = beside(recover, undoer, claimer.id, 1)
        wait_for_lock(connection, "autofill undoer")
        demanded = beside(demand, demander, 1, 2)
        wait_for_lock(connection, "autofill demander")
    undone.result()
    demanded.result()
