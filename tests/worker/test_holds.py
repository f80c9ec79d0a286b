"""Quota, keys and models: one call finds out for all of its lane, which waits; nothing fails, nothing more is sent."""

from collections import Counter
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from cell_engine.kinds.base import Answer, Call, Failure, Outcome
from cell_engine.kinds.function import FunctionKind
from cell_engine.offline_model import Switches
from cell_engine.store.database import Connection
from cell_engine.store.holds import active, lift_collection
from cell_engine.store.reading import progress, recent_dispatches, status_counts
from cell_engine.store.records import stalled
from cell_engine.store.upkeep import keep_up
from cell_engine.worker.holds import FREE, Holds, Refused
from tests.engine import Made, eventually, make, offline_model, running_worker, sheet
from tests.kinds.helpers import llm_column

ROWS, FREE_CALLS, SLOTS = 120, 40, 20
ENDED = "select ended_at is not null from autofill.dispatch where id = %s"
HELD = "select exists (select from autofill.hold where lifted_at is null)"
AT_REST = """
    select not exists (select from autofill.work where state = 'computing')
        and exists (select from autofill.hold where lifted_at is null)
        and not exists (select from autofill.work where state = 'delayed')
"""
FAILED = "select coalesce(sum(cardinality(row_ids)), 0) from autofill.attempt where error_class = %s"
PROBE_NOW = "update autofill.hold set probe_at = clock_timestamp() where lifted_at is null"


def load_of(connection: Connection, made: Made) -> int:
    return recent_dispatches(connection, made.collection.id)[-1].id


def held_calls(connection: Connection, error_class: str) -> int:
    found = connection.execute(FAILED, [error_class]).fetchone()
    assert found is not None
    return int(found[0])


def test_a_lane_out_of_quota_waits_with_at_most_what_was_in_flight_sent_and_goes_on(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with offline_model(monkeypatch) as model:
        model.switches = Switches(latency=0.02, quota_exhausted_from=FREE_CALLS + 1)
        made = make(connection, sheet("a", "b!llm: a", "c: a"), rows=[{"a": f"x{row}"} for row in range(ROWS)])
        with running_worker(database, slots=SLOTS):
            eventually(connection, AT_REST)
            turned_away = model.stats.by_fate["quota_exhausted"]
            assert 1 <= turned_away <= SLOTS
            assert held_calls(connection, "quota") == turned_away  # true, and no attempt of any cell
            assert connection.execute("select count(*) from autofill.work where attempts <> '{}'").fetchone() == (0,)
            counts = status_counts(connection, made.collection.id)
            assert counts[2] == {"ready": FREE_CALLS, "paused": ROWS - FREE_CALLS}
            (hold,) = active(connection)
            assert (hold.reason, hold.what) == ("quota", "llm of test/sheet")
            assert "exceeded your current quota" in hold.message
            assert "held for quota" in next(one.reason for one in stalled(connection, 0) if one.job_type == "llm")

            model.switches = Switches()
            lifted = lift_collection(connection, made.collection.id, "test", "anna")
            assert [one.id for one in lifted] == [hold.id]
            eventually(connection, ENDED, load_of(connection, made))
        assert status_counts(connection, made.collection.id)[2] == {"ready": ROWS}
        assert model.stats.billed.total() == ROWS
        now = progress(connection, load_of(connection, made))
        assert now is not None and not now.failed


def test_one_call_sees_whether_a_hold_is_over_and_no_more(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with offline_model(monkeypatch) as model:
        model.switches = Switches(quota_exhausted_from=1)
        made = make(connection, sheet("a", "b!llm: a"), rows=[{"a": f"x{row}"} for row in range(ROWS)])
        with running_worker(database, slots=SLOTS):
            eventually(connection, AT_REST)
            before = model.stats.arrived
            connection.execute(PROBE_NOW)
            eventually(connection, "select probes = 1 from autofill.hold")
            eventually(connection, AT_REST)
            assert model.stats.arrived == before + 1
            found = connection.execute(
                "select extract(epoch from probe_at - clock_timestamp()) between 100 and 120 from autofill.hold"
            ).fetchone()
            assert found == (True,)  # twice as long as the first time

            model.switches = Switches()
            connection.execute(PROBE_NOW)
            eventually(connection, ENDED, load_of(connection, made))
        assert connection.execute("select lifted_by from autofill.hold").fetchall() == [("a call that came through",)]
        assert model.stats.billed.total() == ROWS


def test_a_model_that_is_missing_holds_its_column_and_not_its_neighbour(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()

    async def compute(self: FunctionKind, call: Call) -> Outcome:
        calls[call.column.name] += 1
        return Failure("model_missing", "no model m") if call.column.name == "b" else Answer("fine")

    monkeypatch.setattr(FunctionKind, "compute", compute)
    made = make(connection, sheet("a", "b: a", "c: a"), rows=[{"a": f"x{row}"} for row in range(ROWS)])
    with running_worker(database, slots=SLOTS):
        eventually(connection, "select count(*) = %s from autofill.cell where column_id = 3", ROWS)
        eventually(connection, HELD)
    assert calls["c"] == ROWS and calls["b"] <= SLOTS
    assert status_counts(connection, made.collection.id) == {2: {"paused": ROWS}, 3: {"ready": ROWS}}
    assert [one.what for one in active(connection)] == ["function of test/sheet, column 'b'"]


def test_a_held_row_still_computes_what_is_not_held(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cell_engine.store.changes import edit

    with offline_model(monkeypatch) as model:
        model.switches = Switches(quota_exhausted_from=1)
        made = make(connection, sheet("a", "b!llm: a", "c", "d: c"), rows=[{"a": "x", "c": "y"}])
        with running_worker(database, slots=SLOTS):
            eventually(connection, AT_REST)
            edit(connection, made.collection.id, 1, {3: "z"}, actor="anna")
            eventually(
                connection,
                "select ai_value is not null and computed_at > (select max(created_at) from autofill.dispatch) "
                "from autofill.cell where row_id = 1 and column_id = 4",
            )
        assert model.stats.by_fate["answered"] == 0


def test_resume_names_what_it_lets_go_on(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cell_engine.cli.main import app

    made = make(connection, sheet("a", "b!llm: a"))
    monkeypatch.setenv("AUTOFILL_DATABASE_URL", database)
    connection.execute(
        "insert into autofill.hold (namespace_id, collection_id, job_type, reason, message) "
        "select namespace_id, id, 'llm', 'auth', 'Incorrect API key.' from autofill.collection"
    )
    shown = CliRunner().invoke(app, ["status"])
    assert "held: llm of test/sheet" in shown.output and "Incorrect API key." in shown.output
    first, again = (CliRunner().invoke(app, ["resume", made.collection.full_name]) for _ in range(2))
    assert first.output.startswith("llm of test/sheet goes on; it was held for auth: Incorrect API key.")
    assert again.output.startswith("nothing of test/sheet is held")


def test_a_hold_with_an_end_ends(connection: Connection) -> None:
    make(connection, sheet("a", "b!llm: a"))
    connection.execute(
        "insert into autofill.hold (namespace_id, job_type, reason, message, expires_at) "
        "select id, 'llm', 'budget', 'the day', clock_timestamp() from autofill.namespace"
    )
    assert active(connection) == []
    keep_up(connection)
    assert connection.execute("select lifted_by from autofill.hold").fetchall() == [("time",)]


def test_an_account_of_a_columns_own_is_held_for_that_column_alone() -> None:
    holds = Holds(cast(Any, None), uuid4, ["llm"])
    usual, own = llm_column(), replace(llm_column(key="OTHER_KEY"), id=101)
    other = replace(llm_column(base_url="https://host/v1"), id=102)
    holds.trip(1, own, Failure("auth", "no"), FREE)
    assert holds.admit(1, "test/sheet", usual) == holds.admit(1, "test/sheet", other) == FREE
    assert isinstance(holds.admit(1, "test/sheet", own), Refused)
    holds.trip(1, usual, Failure("auth", "no"), FREE)
    assert isinstance(holds.admit(1, "test/sheet", other), Refused)
