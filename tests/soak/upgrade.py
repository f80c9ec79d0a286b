"""`python -m tests.soak.upgrade REVISION [SECONDS]`: from an older release to this one, under load, nobody stopping.

The older release, from git, makes its schema and works on it: a worker, a janitor, two people. Then this one migrates,
a worker, a janitor and a person of its own come beside them, and a worker of each is killed, twice. The older ones are
stopped, and at last all. It is well if nothing is lost or stale, nothing was called twice but what was in flight at a
kill, all rules hold, and neither a process nor the server has logged an error. Both releases run with the packages
that are installed here. Exits with 1 and keeps the logs otherwise.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from cell_engine.embedded import ensure, ensure_database
from cell_engine.store import schema
from cell_engine.store.database import Connection, connect
from tests.embedded.helpers import PROJECT
from tests.engine import Made, eventually, make, own_home
from tests.soak.calls import LOG, read_calls
from tests.soak.kills import AT_REST, BOOKED, SPEC, Kill, check
from tests.soak.storm import Person

ROWS = 100
PEOPLE = 3
PATIENCE = 180.0
# What the server may tell of: a migration asks for a table for 0.4 s at a time, and replaces a view whose columns have
# changed by a new one; a worker was killed as it was answered.
MEANT = re.compile("canceling statement due to lock timeout|cannot (change|drop) .*view|connection to client lost")

STANDING = """
select json_build_object(
    'workers', (select json_agg(worker) from autofill.worker where ended_at is null),
    'slots', (select json_agg(slot) from autofill.slot),
    'work', (select json_agg(work) from (select * from autofill.work limit 20) as work),
    'sweeps', (select json_agg(sweep) from autofill.sweep where closed_at is null))
"""


class Release:
    """The code of one release, and what of it runs."""

    def __init__(self, code: Path, url: str, folder: Path) -> None:
        self._code, self._url, self._folder = code, url, folder
        self._running: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        given = {
            "PYTHONPATH": str(self._code),
            "AUTOFILL_DATABASE_URL": self._url,
            "AUTOFILL_HOME": str(self._folder / "home"),
            "AUTOFILL_FUNCTIONS": "tests.*",
            LOG: str(self._folder / "calls"),
        }
        with (self._folder / f"{self._code.name} {len(list(self._folder.glob('*.log')))}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self._code,
                env=os.environ | given,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._running.append(process)
        return process

    def cli(self, *command: str) -> subprocess.Popen[str]:
        return self.start("-m", "cell_engine.cli", *command)

    def worker(self) -> subprocess.Popen[str]:
        return self.cli("worker", "--slots", "6")  # half the collection's cap: two of them share the work

    def person(self, first: int, seed: int) -> subprocess.Popen[str]:
        numbers = (str(number) for number in (ROWS, first, PEOPLE, seed))
        return self.start(str(Path(__file__).with_name("produce.py")), self._url, *numbers)

    def finish(self, process: subprocess.Popen[str]) -> str:
        """Wait for the end of what ends by itself, or with its input; returns what it said."""
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, f"{process.args} failed"
        self._running.remove(process)
        return said

    def end(self, process: subprocess.Popen[str], how: str) -> Kill:
        assert process.poll() is None, f"{process.args} ended by itself"
        getattr(process, how)()
        process.wait(PATIENCE)
        self._running.remove(process)
        return Kill(process.pid, time.time(), time.time())

    def stop(self) -> None:
        for process in [*self._running]:
            self.end(process, "terminate")

    def abandon(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make upgrade ARGS='REVISION [SECONDS]'", description=__doc__)
    parser.add_argument("revision", help="the older release, as git names it")
    parser.add_argument("seconds", type=float, nargs="?", default=180.0, help="of load, 180 by default")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="autofill-upgrade-"))
    try:
        with own_home() as home:
            print(upgrade(home, folder, chosen.revision, chosen.seconds), flush=True)
    except (AssertionError, subprocess.SubprocessError) as error:
        print(f"FAILED: {error}\nThe logs are in {folder}", flush=True)
        return 1
    shutil.rmtree(folder)
    return 0


def upgrade(home: Path, folder: Path, revision: str, seconds: float) -> str:
    """One try; comes to what was done. Raises AssertionError."""
    seed = random.randrange(2**32)
    url = ensure_database(ensure(home), "upgrade")
    (folder / "calls").touch()
    (folder / "old").mkdir()
    archive = subprocess.run(["git", "archive", revision], cwd=PROJECT, check=True, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x"], cwd=folder / "old", input=archive.stdout, check=True)
    old, new = Release(folder / "old", url, folder), Release(PROJECT, url, folder)
    with ExitStack() as ending:
        ending.callback(old.abandon)
        ending.callback(new.abandon)
        before = old.finish(old.cli("migrate")).split()[-1]
        kills: list[Kill] = []
        people = [(old, old.person(1, seed)), (old, old.person(2, seed))]
        old.cli("janitor")
        old_worker = old.worker()
        time.sleep(seconds / 4)
        new.finish(new.cli("migrate"))
        people.append((new, new.person(3, seed)))
        new.cli("janitor")
        new_worker = new.worker()
        for _ in range(2):
            time.sleep(seconds / 8)
            kills.append(old.end(old_worker, "kill"))
            old_worker = old.worker()
            time.sleep(seconds / 8)
            kills.append(new.end(new_worker, "kill"))
            new_worker = new.worker()
        told = [old.finish(one) for release, one in people if release is old]
        old.stop()
        time.sleep(seconds / 4)
        told += [new.finish(one) for release, one in people if release is new]
        with connect(url, application="upgrade") as connection:
            made = make(connection, SPEC)
            try:
                eventually(connection, AT_REST, seconds=PATIENCE)
            except AssertionError as error:
                raise AssertionError(f"{error}{connection.execute(STANDING).fetchone()}") from error
            calls = read_calls(folder / "calls")
            made_by = Counter(one.pid for one in calls.values())
            for pid in made_by.keys() - {one.pid for one in kills}:
                eventually(connection, BOOKED, made_by[pid], pid, seconds=PATIENCE)
            persons = [_person(url, made, json.loads(one)) for one in told]
            new.stop()
            check(url, made, persons, calls, kills)
            warnings = _warnings(connection, folder)
    actions = sum(one.actions for one in persons)
    return (
        f"{revision} (schema {before}) and this (schema {schema.newest()}): {actions} actions, {len(calls)} calls by "
        f"{len(made_by)} workers, {len(kills)} of them killed: nothing found. Warnings: {dict(warnings) or 'none'}"
    )


def _person(url: str, made: Made, told: dict[str, Any]) -> Person:
    person = Person(url, made, ROWS, 1, PEOPLE, random.Random())
    person.shown = {(row, column): values for row, column, values in told["shown"]}
    person.forced = {asked: (range(start, stop), column) for asked, start, stop, column in told["forced"]}
    person.actions = told["actions"]
    return person


def _warnings(connection: Connection, folder: Path) -> Counter[str]:
    """What the processes have warned of, by event. Raises AssertionError for an error, theirs or the server's."""
    (data,) = connection.execute("select current_setting('data_directory')").fetchone() or ()
    server = Path(data, "server.log").read_text(errors="replace")
    (folder / "server.log").write_text(server)
    errors = [line for line in server.splitlines() if re.search("ERROR|FATAL|PANIC", line) and not MEANT.search(line)]
    warnings: Counter[str] = Counter()
    for log in folder.glob("* *.log"):
        for line in log.read_text(errors="replace").splitlines():
            entry = json.loads(line) if line.startswith("{") else {"level": "error"}
            if entry["level"] != "warning":
                errors.append(f"{log.name}: {line}")
            warnings[entry.get("event", "")] += 1
    assert not errors, "\n".join(["errors were logged:", *errors[:20]])
    return warnings


if __name__ == "__main__":
    sys.exit(main())
