"""A cell that ends whatever process computes it is found and set aside; what was beside it when workers died is not."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from cell_engine.kinds.apart import Apart
from cell_engine.kinds.base import Answer, Call, Failure
from cell_engine.plan import Row, plan
from cell_engine.store.database import Connection
from cell_engine.store.demands import RangeScope, RowScope, dispatch
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import page, progress, recent_dispatches
from cell_engine.store.upkeep import keep_up
from tests.engine import Claimer, Made, make

SPEC = """
namespace: test
name: deadly
columns:
  - {name: a, type: text}
  - {name: risky, type: text, kind: function, deps: [a], function: {name: "tests.functions:deadly"}}
  - {name: safe, type: text, kind: function, deps: [a], function: {name: "tests.functions:upper"}}
"""
INNOCENT = 20
WORKER = """
import asyncio, sys
from cell_engine.worker import run_worker
asyncio.run(run_worker(sys.argv[1], lease=1.0, stop=asyncio.Event()))
"""


class Workers:
    """One worker process at a time, started again whenever it has died, as a supervisor would."""

    def __init__(self, url: str) -> None:
        self._command = [sys.executable, "-c", WORKER, url]
        self.process = subprocess.Popen(self._command)
        self.deaths = 0

    def until_ended(self, connection: Connection, dispatch_id: int, seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while (now := progress(connection, dispatch_id)) is None or now.ended_at is None:
            assert time.monotonic() < deadline, now
            if self.process.poll() is not None:
                self.deaths += 1
                self.process = subprocess.Popen(self._command)
            keep_up(connection)
            time.sleep(0.05)


@contextmanager
def working(url: str) -> Iterator[Workers]:
    workers = Workers(url)
    try:
        yield workers
    finally:
        workers.process.kill()
        workers.process.wait()


@pytest.mark.slow
def test_a_cell_that_kills_its_worker_is_set_aside_and_its_neighbours_are_not(
    connection: Connection, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    antidote = tmp_path / "antidote"
    monkeypatch.setenv("TEST_ANTIDOTE", str(antidote))
    rows = [{"a": f"x{number}"} for number in range(INNOCENT)] + [{"a": "poison"}]
    made = make(connection, SPEC, rows=rows)
    load = recent_dispatches(connection, made.collection.id)[0].id
    with working(database) as workers:
        workers.until_ended(connection, load)
        assert workers.deaths == 2  # from then on it ends processes of its own
        _, cells = page(connection, made.collection.id, limit=100)
        (risky,) = [cell for cell in cells if cell.status != "ready"]
        assert (risky.row_id, risky.column_id, risky.error_class) == (INNOCENT + 1, made.id("risky"), "crashed")
        assert "3 times of 3 (SIGKILL, SIGKILL, SIGKILL)" in str(risky.error)
        assert "autofill retry --class crashed" in str(risky.error)
        # What is known to kill is never tried in the worker's own process again.
        scope = RangeScope(((1, INNOCENT + 1),))
        retry = {"only_if": ["error:crashed"], "reason": "retry", "actor": "me"}
        again = dispatch(connection, made.collection.id, scope, columns=[made.id("risky")], **retry)  # type: ignore[arg-type]
        workers.until_ended(connection, again)
        found = progress(connection, again)
        assert found is not None
        assert found.outcomes == {"crashed": 1}
        antidote.touch()
        healed = dispatch(connection, made.collection.id, scope, columns=[made.id("risky")], **retry)  # type: ignore[arg-type]
        workers.until_ended(connection, healed)
        assert workers.deaths == 2
    _, cells = page(connection, made.collection.id, limit=100)
    assert {cell.status for cell in cells} == {"ready"}
    assert broken_rules(connection) == {}


def test_deaths_are_counted_by_row_and_one_that_is_there_at_each_comes_back_ever_more_seldom(
    connection: Connection,
) -> None:
    made = make(connection, rows=[{"a": "x"}], demand=False)
    dispatch(connection, made.collection.id, RowScope((1,)), reason="reprocess", actor="me")
    for death in range(1, 7):
        (one,) = Claimer(connection, lease=0).claim()
        assert one.deaths == death - 1
        keep_up(connection)
        found = connection.execute(
            "select deaths, state, deferred, extract(epoch from available_at - clock_timestamp())::int as seconds "
            "from autofill.work"
        ).fetchone()
        assert found is not None
        if death < 5:
            assert found == (death, "queued", False, None)
        else:
            assert found == (death, "delayed", True, 30 * 2 ** (death - 5))
            connection.execute("update autofill.work set available_at = now() where state = 'delayed'")
    # With its work the suspicion goes.
    Claimer(connection).work_off()
    assert connection.execute("select count(*) from autofill.work").fetchone() == (0,)


def call_of(made: Made, a: str, deadline: float = 20.0) -> Call:
    column = made.version.by_name["risky"]
    (due, _) = plan(Row({made.id("a"): a}), made.version, {}).due
    return Call(column, due.inputs, {made.id("a"): "a"}, "test/deadly", 1, ("key",), deadline)


def test_a_call_apart_answers_as_it_would_here(
    connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_ANTIDOTE", str(tmp_path / "none"))
    made = make(connection, SPEC)
    apart = Apart()

    async def compute() -> object:
        task = apart.start(call_of(made, "x"))
        assert apart.free == 1
        outcome = await task
        await asyncio.sleep(0)
        assert apart.free == 2
        return outcome

    assert asyncio.run(compute()) == Answer("x")


def test_a_call_apart_that_is_given_up_leaves_no_process_behind(
    connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_ANTIDOTE", str(tmp_path / "none"))
    monkeypatch.setattr("cell_engine.kinds.apart.STARTING_SECONDS", 0.01)
    made = make(connection, SPEC)
    apart = Apart()

    async def late() -> object:
        return await apart.start(call_of(made, "x", deadline=0.01))

    outcome = asyncio.run(late())
    assert isinstance(outcome, Failure)
    assert outcome.error_class == "transient"

    async def canceled() -> None:
        task = apart.start(call_of(made, "x"))
        while not _children():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(canceled())
    assert _children() == []
    assert apart.free == 2


def _children() -> list[psutil.Process]:
    return [
        one for one in psutil.Process(os.getpid()).children() if "cell_engine.kinds.apart" in " ".join(one.cmdline())
    ]
