"""Whatever dies during a backfill, it ends right: nothing lost, nothing paid for twice but what was in flight."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cell_engine.embedded import ensure
from cell_engine.specs.compile import compile_text
from cell_engine.store.applying import apply
from cell_engine.store.batches import add_batch
from cell_engine.store.collections import find_collection, load_version
from cell_engine.store.database import Connection, connect
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import page
from tests.dagster.calls import HELD, gate
from tests.dagster.live import Live, dispatch_of, is_noted, running, until
from tests.embedded.helpers import kill_server
from tests.engine import own_database, own_home
from tests.soak.calls import LOG, read_calls
from tests.soak.kills import Kill, check_bill

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SPEC = """
namespace: test
name: held
cap: 30
columns:
  - {name: a, type: text}
  - {name: b, type: text, kind: function, deps: [a], timeout: 600, function: &call {name: "tests.dagster.calls:call"}}
  - {name: c, type: text, kind: function, deps: [b], function: *call}
"""
COLUMNS = ("b", "c")
BATCHES = ("b1", "b2", "b3", "b4")
FREE, HELD_BACK = 6, 3
ROWS = len(BATCHES) * (FREE + HELD_BACK)


@pytest.fixture
def home() -> Iterator[Path]:
    """Of a server of the test's own, to be killed."""
    with own_home() as home:
        yield home


@pytest.fixture
def live(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    monkeypatch.setenv(LOG, str(tmp_path / "calls"))
    with own_database(home, "live") as database, running(tmp_path, database, SPEC) as live:
        yield live


def load(connection: Connection) -> None:
    """Batches that nobody has asked to compute yet."""
    apply(connection, compile_text(SPEC), actor="test")
    version = load_version(connection, find_collection(connection, "test/held").id)
    for key in BATCHES:
        texts = [f"free {key} {row}" for row in range(FREE)] + [f"{HELD} {key} {row}" for row in range(HELD_BACK)]
        rows = [{version.by_name["a"].id: text} for text in texts]
        add_batch(connection, version, key, rows, source=key, actor="test", demand=False)


def statuses(database: str) -> list[str]:
    with connect(database, application="test") as connection:
        collection = find_collection(connection, "test/held")
        return [one.status for one in page(connection, collection.id, limit=ROWS)[1]]


def test_a_backfill_survives_its_daemon_its_run_its_code_server_and_the_database(live: Live, home: Path) -> None:
    with connect(live.database, application="test") as connection:
        load(connection)
    until(lambda: live.partitions("test", "held", "b") == [*BATCHES])
    backfill = live.backfill([("test", "held", column) for column in COLUMNS], BATCHES)

    def next_run(*before: dict[str, Any]) -> dict[str, Any]:
        """The run that comes after these, once it waits for its dispatch."""
        seen = {run["runId"] for run in before}

        def look() -> dict[str, Any] | None:
            newest = live.runs_of(backfill)[0]
            waits = newest["status"] == "STARTED" and is_noted(newest)
            return newest if waits and newest["runId"] not in seen else None

        found: dict[str, Any] = until(look)
        return found

    # The daemon, which has not got to the backfill yet: the one that follows it does.
    live.kill("daemon")
    assert live.backfill_status(backfill) == "REQUESTED"
    live.serve("daemon")
    first = next_run()
    live.work()
    until(lambda: statuses(live.database).count("ready") == 2 * len(BATCHES) * FREE)

    # The run's process: its retry waits for the same dispatch.
    live.run_process().kill()
    second = next_run(first)

    # The code server goes down with its run, whose end nobody reports: the daemon finds it gone. A look at the backfill
    # meanwhile, when its assets are unknown, is no end of it.
    live.kill("code-server")
    until(lambda: "The backfill will resume once" in (live.home / "daemon.log").read_text())
    assert live.backfill_status(backfill) == "REQUESTED"
    live.serve("code-server")
    third = next_run(first, second)
    assert {dispatch_of(run) for run in (first, second, third)} == {dispatch_of(first)}

    # PostgreSQL, Dagster's own storage with it, while a model is at work for what is left: all of them find back.
    made = read_calls(live.home / "calls").values()
    assert sum(one.ended == float("inf") for one in made) == len(BATCHES) * HELD_BACK
    at = time.time()
    kill_server(ensure(home))
    ensure(home)
    killed = Kill(None, at, time.time())
    assert all(process.poll() is None for process in live.processes.values())

    # The daemon once more, before the end: the one that follows it closes the backfill.
    live.kill("daemon")
    gate(live.home / "calls").touch()
    until(lambda: statuses(live.database) == ["ready"] * 2 * ROWS)
    live.serve("daemon")
    until(lambda: live.backfill_status(backfill) == "COMPLETED_SUCCESS")
    assert all(live.processes[name].poll() is None for name in ("code-server", "webserver", "janitor", "worker 0"))
    live.rest()

    last = live.runs_of(backfill)[0]
    assert last["status"] == "SUCCESS" and dispatch_of(last) == dispatch_of(first)
    for column in COLUMNS:
        shown = live.materializations("test", "held", column)
        assert sorted(one["partition"] for one in shown) == [*BATCHES]
        assert {one["run"] for one in shown} == {last["runId"]}
    with connect(live.database, application="test") as connection:
        found = connection.execute("select id from autofill.dispatch where ended_at is not null").fetchall()
        assert [one.id for one in found] == [dispatch_of(first)]
        check_bill(connection, read_calls(live.home / "calls"), [killed])
        assert broken_rules(connection) == {}
