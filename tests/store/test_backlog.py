"""A sweep stops while what it has left behind is a backlog, and goes on when that is gone (mechanic 8)."""

import pytest

from cell_engine.plan import plan
from cell_engine.store import records, slots
from cell_engine.store.claims import Reading
from cell_engine.store.collections import load_version
from cell_engine.store.database import Connection
from cell_engine.store.records import stalled
from tests.engine import Claimer, make, sheet

ROWS, BACKLOG, CAP = 30, 6, 3


@pytest.fixture
def functions(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> Claimer:
    monkeypatch.setattr(slots, "BACKLOG", BACKLOG)
    monkeypatch.setattr(records, "BACKLOG", BACKLOG)
    make(connection, sheet("a", "fast: a", "slow!llm: fast", cap=CAP), rows=[{"a": str(row)} for row in range(ROWS)])
    return Claimer(connection, ["function"])


def leave(functions: Claimer, visits: list[Reading], ending: str) -> None:
    job_type = "llm" if ending == "hand_over" else None
    seconds = 3600.0 if ending == "delay" else None
    functions.flush(
        releases=[functions.release(visit, ending, job_type=job_type, seconds=seconds) for visit in visits]  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("ending", ["hand_over", "delay"])
def test_a_sweep_waits_while_what_it_left_behind_is_a_backlog(
    connection: Connection, functions: Claimer, ending: str
) -> None:
    while visits := functions.claim():
        leave(functions, visits, ending)
    (left,) = connection.execute("select count(*) from autofill.work").fetchone() or (0,)
    assert BACKLOG < left <= BACKLOG + CAP
    assert connection.execute("select count(*) from autofill.sweep where closed_at is null").fetchone() == (1,)
    why = {lane.job_type: lane.reason for lane in stalled(connection, seconds=0)}["function"]
    waits = {"hand_over": "wait in lane llm", "delay": "wait to be tried again"}[ending]
    assert why == f"over {BACKLOG} rows {waits}"


def test_a_sweep_goes_on_when_its_backlog_is_gone(connection: Connection, functions: Claimer) -> None:
    while visits := functions.claim():
        leave(functions, visits, "hand_over")
    models = Claimer(connection, ["llm"])
    done = 0
    while done < ROWS:
        for visit in models.claim():
            models.visit(visit)
            done += 1
        while visits := functions.claim():
            leave(functions, visits, "hand_over")
    assert connection.execute("select count(*) from autofill.work").fetchone() == (0,)
    assert connection.execute("select count(*) from autofill.dispatch where ended_at is null").fetchone() == (0,)


def test_rows_that_wait_for_files_hold_a_sweep_back_much_later(connection: Connection, functions: Claimer) -> None:
    """Those behind them have their files, perhaps."""
    claimed = 0
    version = load_version(connection, 1)
    column = version.by_name["fast"].id
    while visits := functions.claim():
        claimed += len(visits)
        results = [
            functions.answer(
                visit, column, None, plan(visit.row, version, {}), retry=True, error_class="waiting", error="not there"
            )
            for visit in visits
        ]
        functions.flush(results, [functions.release(visit, "delay", seconds=3600.0) for visit in visits])
    assert claimed == ROWS > BACKLOG
    assert connection.execute("select count(*) from autofill.work where waiting is not null").fetchone() == (ROWS,)
    assert connection.execute("select count(*) from autofill.attempt").fetchone() == (ROWS,)
