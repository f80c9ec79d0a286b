"""A kill round: real workers and a real server, killed with -9 at random under a storm of edits and sweeps.

At its end: nothing lost, nothing stale (R8), and no call made twice but what was in flight at a kill.
"""

import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cell_engine.embedded import ensure
from cell_engine.embedded.server import Server
from cell_engine.janitor import run_janitor
from cell_engine.store.database import Connection, connect
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import page
from tests.embedded.helpers import PROJECT, kill_server
from tests.engine import Made, eventually, make, own_database
from tests.soak.calls import LOG, Call, read_calls
from tests.soak.storm import Person

SPEC = """
namespace: soak
name: round
cap: 12
columns:
  - {name: a, type: text}
  - {name: k, type: text}
  - {name: b, type: text, kind: function, deps: [a], function: &call {name: "tests.soak.calls:call"}}
  - {name: c, type: text, kind: function, deps: [k, {column: b, optional: true}], function: *call}
  - {name: d, type: text, kind: function, deps: [b, c], function: *call}
  - {name: n, type: text, kind: function, mode: never, deps: [b], function: *call}
"""
ROWS = 40
PEOPLE = 2
KILLS = (2, 5)
BETWEEN = (0.3, 3.0)
"""Seconds from one kill to the next; a worker is up after one or two."""
FLUSHED = 3.0
"""Seconds within which an answer is stored, on however busy a machine, while the server is there."""

PATIENCE = 60.0


@dataclass
class Kill:
    """What was in flight at `at` may be called again: of that process, or (None: the server) of all, until `until`."""

    pid: int | None
    at: float
    until: float

    def excuses(self, call: Call) -> bool:
        return self.pid in (None, call.pid) and call.started <= self.until and call.ended >= self.at - FLUSHED


@dataclass(frozen=True)
class Figures:
    """What a round was: kills of workers and of the server, calls made, and how many of them were made again."""

    workers: int
    servers: int
    actions: int
    calls: int
    again: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.workers} workers and {self.servers} servers killed, {self.actions} actions, {self.calls} calls, "
            f"{self.again} of them again, {self.seconds:.1f} s"
        )


class Workers:
    """Worker processes, each followed by another when it is killed."""

    def __init__(self, url: str, folder: Path) -> None:
        self.log = folder / "calls"
        self.log.touch()
        self._url = url
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.soak.work", self._url]
        with (self._folder / "workers").open("ab") as output:
            self._running.append(
                subprocess.Popen(
                    command, cwd=PROJECT, env=os.environ | {LOG: str(self.log)}, stdout=output, stderr=output
                )
            )

    def kill(self, lots: random.Random) -> int:
        """One of them; returns its pid."""
        process = self._running.pop(lots.randrange(len(self._running)))
        assert process.poll() is None, f"a worker ended by itself:\n{(self._folder / 'workers').read_text()[-3000:]}"
        process.kill()
        process.wait()
        return process.pid

    def wait_until_up(self) -> None:
        """A worker that starts without a server ends at once, to be started again: not what is tried here."""
        with connect(self._url, application="soak") as connection:
            for process in self._running:
                query = "select exists (select from autofill.worker where pid = %s)"
                eventually(connection, query, process.pid, seconds=PATIENCE)

    def pids(self) -> list[int]:
        return [process.pid for process in self._running]

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()


def kill_round(home: Path, seed: int) -> Figures:
    """One round, in a database of its own on the server of `home`. Raises AssertionError.

    Everything follows from `seed` but when each process runs.
    """
    with own_database(home, f"round_{seed}") as url:
        return _kill_round(home, url, seed)


def _kill_round(home: Path, url: str, seed: int) -> Figures:
    lots = random.Random(seed)
    began = time.monotonic()
    server = ensure(home)
    with connect(url, application="soak") as connection:
        rows = [{"a": f"{row}", "k": f"{row}"} for row in range(1, ROWS + 1)]
        made = make(connection, SPEC, rows=rows)
    people = [Person(url, made, ROWS, 1 + one, PEOPLE, random.Random(f"{seed} {one}")) for one in range(PEOPLE)]
    kills: list[Kill] = []
    enough = threading.Event()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(PEOPLE) as pool, keeping_up(url):
        workers = Workers(url, Path(folder))
        try:
            for _ in range(2):
                workers.start()
            acting = [pool.submit(one.act, enough) for one in people]
            try:
                for _ in range(lots.randint(*KILLS)):
                    time.sleep(lots.uniform(*BETWEEN))
                    kills.append(_kill(lots, server, home, workers))
            finally:
                enough.set()
            for one in acting:
                one.result()
            with connect(url, application="soak") as connection:
                eventually(connection, AT_REST, seconds=PATIENCE)
                # An answer that came too late for its cell is still to be booked, and rest does not wait for that.
                made_by = Counter(one.pid for one in read_calls(workers.log).values())
                for pid in workers.pids():
                    eventually(connection, BOOKED, made_by[pid], pid, seconds=PATIENCE)
        finally:
            workers.end()
        calls = read_calls(workers.log)
    check(url, made, people, calls, kills)
    dead = sum(one.pid is None for one in kills)
    again = len(calls) - len({one.key for one in calls.values()})
    acted = sum(one.actions for one in people)
    return Figures(len(kills) - dead, dead, acted, len(calls), again, time.monotonic() - began)


@contextmanager
def keeping_up(url: str) -> Iterator[None]:
    """A janitor beside the round."""
    stop = threading.Event()
    janitor = threading.Thread(target=run_janitor, args=(url,), kwargs={"period": 0.5, "stop": stop})
    janitor.start()
    try:
        yield
        assert janitor.is_alive(), "the janitor ended by itself"
    finally:
        stop.set()
        janitor.join()


def _kill(lots: random.Random, server: Server, home: Path, workers: Workers) -> Kill:
    if lots.random() < 0.6:
        pid = workers.kill(lots)
        now = time.time()
        workers.start()
        return Kill(pid, now, now)
    workers.wait_until_up()
    at = time.time()
    kill_server(server)
    time.sleep(lots.choice([0.0, lots.uniform(0.0, 1.0)]))
    ensure(home)
    return Kill(None, at, time.time())


def check(url: str, made: Made, people: list[Person], calls: dict[str, Call], kills: list[Kill]) -> None:
    with connect(url, application="soak") as connection:
        assert broken_rules(connection) == {}
        check_bill(connection, calls, kills)
        inputs, cells = page(connection, made.collection.id, limit=people[0].rows)
        called = connection.execute("select row_id, column_id, called from autofill.cell").fetchall()
        signals = dict(connection.execute("select id, signal from autofill.dispatch").fetchall())
    shown = {(one.row_id, one.column_id): one.value for one in (*inputs, *cells)}
    for person in people:
        for key, values in person.shown.items():
            assert shown[key] in values, f"an edit is lost: row and column {key} show {shown[key]}, not {values}"
    for one in cells:
        column = made.version.by_id[one.column_id]
        if column.mode == "never":
            assert one.status in ("ready", "outdated", "empty", "canceled"), one
            continue
        assert one.status == "ready", f"R8: {one}"
        read = {made.version.by_id[dep.column].name: shown[one.row_id, dep.column] for dep in column.deps}
        assert calls[str(one.value)].inputs == read, f"R8: {one} read {calls[str(one.value)].inputs}, shown is {read}"
    numbers = {(one.row_id, one.column_id): one.called for one in called}
    for person in people:
        for asked, (rows, column_id) in person.forced.items():
            for row in rows:
                assert numbers[row, column_id] >= signals[asked], f"R6: dispatch {asked} is lost in row {row}"


def check_bill(connection: Connection, calls: dict[str, Call], kills: list[Kill]) -> None:
    """Every call is stored, in a cell or as an answer replaced since, but what was in flight at a kill; so it is called
    again only for that. What a worker paid and lived to tell is booked."""
    found = connection.execute(
        "select ai_value as answer from autofill.cell where ai_value is not null union all "
        "select was from autofill.answer"
    ).fetchall()
    booked = dict(
        connection.execute(
            "select pid, sum(cardinality(row_ids))::int from autofill.attempt "
            "join autofill.worker on worker.id = worker_id where outcome <> 'interrupted' group by pid"
        ).fetchall()
    )
    stored = {str(one.answer) for one in found}
    assert stored <= calls.keys()
    lost = [one for one in calls.values() if one.answer not in stored]
    for one in lost:
        assert any(kill.excuses(one) for kill in kills), f"R2: a paid answer is lost: {one}, {kills}"
    again = Counter(one.key for one in calls.values()) - Counter({one.key for one in calls.values()})
    excused = Counter(one.key for one in lost)
    assert again <= excused, f"called twice without need: {again - excused}"
    killed = {kill.pid for kill in kills}
    for pid, made in Counter(one.pid for one in calls.values()).items():
        assert pid in killed or booked.get(pid, 0) >= made, (
            f"R2: {made} calls of {pid}, {booked.get(pid, 0)} are booked"
        )


BOOKED = """
select coalesce(sum(cardinality(row_ids)), 0) >= %s from autofill.attempt
join autofill.worker on worker.id = worker_id where outcome <> 'interrupted' and pid = %s
"""
AT_REST = """
select not exists (select from autofill.dispatch where ended_at is null)
    and not exists (select from autofill.work) and not exists (select from autofill.sweep where closed_at is null)
"""
