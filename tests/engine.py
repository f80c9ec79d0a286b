"""What tests of the engine share: a small collection, rows in it, and a worker of their own over real PostgreSQL."""

import asyncio
import re
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from cell_engine.embedded import ensure, ensure_database, stop
from cell_engine.offline_model import OfflineModel
from cell_engine.plan import BLOCKED, Due, Plan, is_held, plan
from cell_engine.specs.compile import compile_text
from cell_engine.specs.text import Json
from cell_engine.specs.version import Version
from cell_engine.store.applying import apply
from cell_engine.store.batches import Batch, add_batch
from cell_engine.store.claims import Claimed, Reading, Token, claim, read, register
from cell_engine.store.collections import Collection, find_collection, load_version
from cell_engine.store.database import Connection
from cell_engine.store.migrating import migrate
from cell_engine.store.results import Ending, Flushed, Release, Result, end_dispatches, flush
from cell_engine.worker import run_worker

CHAIN = """
namespace: test
name: chain
columns:
  - {name: a, type: text}
  - {name: b, type: text, kind: function, deps: [a], function: {name: "tests.functions:upper"}}
  - {name: c, type: text, kind: function, deps: [b], function: {name: "tests.functions:upper_b"}}
"""


_COLUMN = re.compile(
    r"(?P<name>\w+)(?P<review>[*])?(@(?P<definition>\w+))?(/(?P<mode>\w+))?(!(?P<kind>\w+))?(: (?P<deps>.+))?"
)


def sheet(*columns: str, name: str = "sheet", cap: int | None = None) -> str:
    """A collection's YAML, for tests where only the shape matters; all columns are text.

    "a" is an input; "d: a b?" is computed from a and, optionally, b; "d@2: a" has another definition than "d: a";
    "d/never: a" has that mode and "d!llm: a" that kind; "d*: a" holds its answers for review.
    """
    lines = ["namespace: test", f"name: {name}", *([f"cap: {cap}"] if cap is not None else []), "columns:"]
    for column in columns:
        found = _COLUMN.fullmatch(column)
        assert found is not None, column
        fields = [f"name: {found['name']}", "type: text"]
        if found["deps"]:
            deps = [
                f"{{column: {dep[:-1]}, optional: true}}" if dep.endswith("?") else dep for dep in found["deps"].split()
            ]
            settings = {
                "function": f'{{name: "tests.functions:shape_{found["definition"] or 1}"}}',
                "llm": f'{{model: shape-{found["definition"] or 1}, prompt: "-"}}',
            }
            kind = found["kind"] or "function"
            fields += [f"kind: {kind}", f"deps: [{', '.join(deps)}]", f"{kind}: {settings[kind]}"]
            fields += [f"mode: {found['mode']}"] if found["mode"] else []
            fields += ["review: required"] if found["review"] else []
        lines.append(f"  - {{{', '.join(fields)}}}")
    return "\n".join(lines)


@dataclass(frozen=True)
class Made:
    """An applied collection with rows."""

    collection: Collection
    version: Version
    batch: Batch | None

    def id(self, name: str) -> int:
        return self.version.by_name[name].id


def make(
    connection: Connection,
    spec: str = CHAIN,
    rows: Sequence[Mapping[str, Json]] = (),
    *,
    demand: bool = True,
    key: str = "batch",
    admission: bool = False,
) -> Made:
    """Apply `spec`, and load `rows` (by column name) as one batch. Tests ask more often than people may, unless it is
    for `admission` that they ask."""
    applied = apply(connection, compile_text(spec), actor="test")
    if not admission:
        for table in ("namespace", "collection"):
            connection.execute(f"update autofill.{table} set dispatches = null".encode())
    collection = find_collection(connection, applied.collection.full_name)
    batch = None
    if rows:
        loaded = [{applied.version.by_name[name].id: value for name, value in row.items()} for row in rows]
        batch, _ = add_batch(connection, applied.version, key, loaded, source="test", actor="test", demand=demand)
    return Made(collection, applied.version, batch)


class Claimer:
    """A worker taken apart: each step of a visit is the test's to make, in any order."""

    def __init__(
        self, connection: Connection, job_types: Sequence[str] = ("function", "llm"), lease: float = 30
    ) -> None:
        self.connection = connection
        self.id = uuid4()
        self.job_types = list(job_types)
        self._claims = count(1)
        self._freed: Counter[int] = Counter()
        register(connection, self.id, host="test", pid=1, job_types=self.job_types, lease=lease)

    def claim(self, slots: int = 500) -> list[Reading]:
        return self.claimed(slots).visits

    def claimed(self, slots: int = 500) -> Claimed:
        token = Token(self.id, next(self._claims))
        freed, self._freed = self._freed, Counter()
        claimed = claim(self.connection, token, self.job_types, slots, slots, freed)
        end_dispatches(self.connection, claimed.swept)
        return claimed

    def reread(self, reading: Reading) -> Reading | None:
        found = read(self.connection, self.id, [(reading.key, reading.token.claim)])
        return found[0] if found else None

    def answer(self, reading: Reading, column: int, value: Json, steps: Plan, **changes: object) -> Result:
        """The result of the due call of `column` in `steps`."""
        due = next(one for one in steps.due if one.column.id == column)
        fields: dict[str, object] = {
            "key": reading.key,
            "token": reading.token,
            "column_id": column,
            "signal": reading.signal,
            "dispatch_id": reading.dispatch_id,
            "batch_id": reading.batch_id,
            "version": reading.version,
            "read_change": due.read_change,
            "fingerprint": due.fingerprint,
            "value": value,
            "state": "proposed" if is_held(due.column, reading.row.cells.get(column), value) else None,
        }
        return Result(**(fields | changes))  # type: ignore[arg-type]

    def release(self, reading: Reading, ending: Ending = "done", **changes: object) -> Release:
        return Release(reading.key, reading.token, reading.signal, reading.raised, ending, **changes)  # type: ignore[arg-type]

    def flush(self, results: Sequence[Result] = (), releases: Sequence[Release] = ()) -> Flushed:
        flushed = flush(self.connection, self.id, results, releases)
        self._freed.update(flushed.freed)
        end_dispatches(self.connection, list(flushed.dispatches))
        return flushed

    def found(self, reading: Reading, steps: Plan) -> list[Result]:
        """What the plan found without a call: cells that are blocked, and those that are current again."""
        common = {
            "key": reading.key, "token": reading.token, "signal": reading.signal, "dispatch_id": reading.dispatch_id,
            "batch_id": reading.batch_id, "version": reading.version, "call": False,
        }  # fmt: skip
        return [
            Result(
                column_id=step.column.id, read_change=step.read_change, fingerprint=step.fingerprint,
                error_class=BLOCKED, error=step.reason, demanded=step.demanded, **common,
            )
            for step in steps.blocked
        ] + [
            Result(
                column_id=step.column.id, read_change=step.read_change,
                **(common | ({"version": None} if step.stale else {})),
            )
            for step in steps.current
        ] + [
            Result(
                column_id=step.column.id, read_change=step.read_change, demanded=step.demanded, state="waiting",
                **(common | {"version": None}),
            )
            for step in steps.waiting
        ]  # fmt: skip

    def visit(self, reading: Reading, answer: Callable[[Due], Json] | None = None) -> list[str]:
        """Make one visit to its end, one plan after the other; returns the names of the columns called, in order.

        Unless `answer` says otherwise, a call answers its column's name and what it read.
        """
        called: list[str] = []
        current: Reading | None = reading
        while current is not None:
            version = load_version(self.connection, current.key.collection_id, current.version)
            steps = plan(current.row, version, current.asked)
            results = self.found(current, steps)
            for due in steps.due:
                value = answer(due) if answer is not None else f"{due.column.name}({_text(due.inputs)})"
                results.append(self.answer(current, due.column.id, value, steps))
            called += [due.column.name for due in steps.due]
            if results:
                self.flush(results)
                current = self.reread(current)
            else:
                current = self.flush(releases=[self.release(current)]).released[0].reading
        return called

    def work_off(self, answer: Callable[[Due], Json] | None = None) -> list[str]:
        """Visit everything there is; returns the names of the columns called, in order."""
        called: list[str] = []
        while visits := self.claim():
            for reading in visits:
                called += self.visit(reading, answer)
        return called


@contextmanager
def own_home() -> Iterator[Path]:
    """The home of a server of the test's own, which it may start, stop and kill; gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="autofill-test-"))
    folder.chmod(0o755)  # as root, the server runs as another user, and has to get in
    try:
        yield folder / "home"
    finally:
        stop(folder / "home")
        shutil.rmtree(folder)


@contextmanager
def own_database(home: Path, name: str) -> Iterator[str]:
    """The URL of a new database with the schema in it, on the server of `home`; gone at the end if all went well."""
    url = ensure_database(ensure(home), name)
    migrate(url)
    yield url
    with psycopg.connect(ensure(home).dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@contextmanager
def running_worker(url: str, **options: object) -> Iterator[None]:
    """A real worker beside the test, in a thread with a loop of its own."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    thread = threading.Thread(
        target=loop.run_until_complete,
        args=(run_worker(url, stop=stop, **{"grace": 5.0, **options}),),  # type: ignore[arg-type]
    )
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


@contextmanager
def offline_model(monkeypatch: pytest.MonkeyPatch) -> Iterator[OfflineModel]:
    """The offline model over HTTP, in a thread of its own, as what `OPENAI_BASE_URL` names."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    model = asyncio.run_coroutine_threadsafe(OfflineModel().start(), loop).result(30)
    monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    try:
        yield model
    finally:
        asyncio.run_coroutine_threadsafe(model.stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


def eventually(connection: Connection, query: str, *parameters: object, seconds: float = 30) -> None:
    """Wait until `query` returns true; fails after `seconds`. For what another process does, never for an order."""
    deadline = time.monotonic() + seconds
    while True:
        found = connection.execute(query.encode(), parameters).fetchone()
        if found is not None and found[0]:
            return
        assert time.monotonic() < deadline, f"not within {seconds} s: {query}"
        time.sleep(0.02)


def wait_for_lock(connection: Connection, application: str) -> None:
    """Until the backend of that application waits for a lock: how an interleaving is forced."""
    eventually(
        connection,
        "select exists (select from pg_stat_activity where application_name = %s and wait_event_type = 'Lock' "
        "and datname = current_database())",
        application,
    )


def wait_or_lock(connection: Connection, application: str, future: "Future[Any]") -> None:
    """Until what runs there has ended or waits for a lock: for tests that allow either."""
    deadline = time.monotonic() + 30
    query = (
        "select from pg_stat_activity where application_name = %s and wait_event_type = 'Lock' "
        "and datname = current_database()"
    )
    while not future.done() and connection.execute(query, [application]).fetchone() is None:
        assert time.monotonic() < deadline, f"{application} neither ended nor waits for a lock"
        time.sleep(0.02)


def _text(inputs: Mapping[int, Json]) -> str:
    return ",".join(str(value) for value in inputs.values())
