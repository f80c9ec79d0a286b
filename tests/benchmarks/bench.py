"""What the figures share: a server of their own, collections, worker processes, and how a figure is printed."""

import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path

from cell_engine.embedded import ensure, ensure_database, stop
from cell_engine.embedded.server import Server
from cell_engine.janitor import run_janitor
from cell_engine.specs.compile import compile_text
from cell_engine.specs.version import Version
from cell_engine.store.applying import apply
from cell_engine.store.database import Connection, connect
from cell_engine.store.migrating import migrate
from cell_engine.worker import run_worker
from tests.benchmarks.noop import JOB_TYPE, NoopKind

WORKERS = 2
ROUNDS = 3
SPAWN = get_context("spawn")


@dataclass(frozen=True)
class Figure:
    """The median of `runs` against its target: at least it, or, with `at_most`, no more than it."""

    name: str
    runs: Sequence[float]
    unit: str
    target: float
    at_most: bool = False
    more: Mapping[str, object] = field(default_factory=dict)

    def print(self) -> None:
        value = statistics.median(self.runs)
        holds = value <= self.target if self.at_most else value >= self.target
        line = {"name": self.name, "value": round(value, 3), "unit": self.unit, "target": self.target, "holds": holds}
        line |= {"limit": "at most" if self.at_most else "at least", "runs": [round(run, 3) for run in self.runs]}
        print(json.dumps({**line, **self.more}), flush=True)


@dataclass(frozen=True)
class Sheet:
    """An applied collection: one text input `a`, and computed columns of the noop kind, each reading the one before."""

    id: int
    version: Version

    @property
    def computed(self) -> list[int]:
        return [column.id for column in self.version.computed]

    @property
    def input(self) -> int:
        return self.version.by_name["a"].id


@contextmanager
def own_server() -> Iterator[Server]:
    """An embedded server in a temporary home, with its usual settings; gone at the end."""
    home = Path(tempfile.mkdtemp(prefix="autofill-bench-"))
    home.chmod(0o755)  # as root, the server runs as another user, and has to get in
    try:
        yield ensure(home)
    finally:
        stop(home)
        shutil.rmtree(home, ignore_errors=True)


def migrated(server: Server, name: str) -> str:
    """The URL of a new database with the schema in it."""
    url = ensure_database(server, name)
    migrate(url)
    return url


def sheet(
    connection: Connection, namespace: str, name: str, columns: int, seconds: float = 0.0, last: str = JOB_TYPE
) -> Sheet:
    """`seconds` is what a call takes; `last` is the job type of the last column. Admission counts dispatches, and
    lets in more of them than are made here."""
    lines = [f"namespace: {namespace}", f"name: {name}", "columns:", "  - {name: a, type: text}"]
    for number in range(1, columns + 1):
        dep = "a" if number == 1 else f"c{number - 1}"
        kind = last if number == columns else JOB_TYPE
        settings = f"{kind}: {{seconds: {seconds!r}}}"
        lines.append(f"  - {{name: c{number}, type: text, kind: {kind}, deps: [{dep}], {settings}}}")
    applied = apply(connection, compile_text("\n".join(lines)), actor="benchmark")
    for table in ("namespace", "collection"):
        connection.execute(f"update autofill.{table} set dispatches = 10000 where dispatches < 10000".encode())
    return Sheet(applied.collection.id, applied.version)


def fill(connection: Connection, target: Sheet, rows: int, batch_rows: int = 50_000) -> None:
    """Rows 1…`rows` as loads leave them, without demand; made by the server, because loading is not measured here."""
    connection.execute(
        """with batch as (
            insert into autofill.batch (collection_id, id, key, source, first_row, last_row, actor)
            select %(id)s, n, 'batch ' || n, 'benchmark', (n - 1) * %(size)s + 1, least(n * %(size)s, %(rows)s),
                'benchmark'
            from generate_series(1, (%(rows)s - 1) / %(size)s + 1) as n
            returning id
        )
        update autofill.collection set next_row = %(rows)s + 1, next_batch = (select max(id) + 1 from batch)
        where id = %(id)s""",
        {"id": target.id, "rows": rows, "size": batch_rows},
    )
    connection.execute(
        """insert into autofill.row (collection_id, row_id, batch_id, inputs)
        select %(id)s, n, (n - 1) / %(size)s + 1, jsonb_build_object(%(input)s::text, 'value ' || n)
        from generate_series(1, %(rows)s) as n""",
        {"id": target.id, "rows": rows, "size": batch_rows, "input": target.input},
    )


@contextmanager
def workers(
    url: str,
    started: "SimpleQueue[tuple[str, float]] | None" = None,
    pools: Sequence[str] = (JOB_TYPE,) * WORKERS,
) -> Iterator[None]:
    """Worker processes, one for each of `pools`, that are up and looking for work, and a janitor; they hand back at the
    end."""
    stopping = SPAWN.Event()
    over = threading.Event()
    janitor = threading.Thread(target=run_janitor, args=(url,), kwargs={"stop": over})
    janitor.start()
    processes = [SPAWN.Process(target=_work, args=(url, stopping, started, pool)) for pool in pools]
    for process in processes:
        process.start()
    try:
        with connect(url, application="benchmark") as connection:
            _until(connection, "select count(*) = %s from autofill.worker where ended_at is null", len(pools))
        yield
    finally:
        stopping.set()
        over.set()
        janitor.join()
        for process in processes:
            process.join(60)
            process.kill()


def wait_for_end(connection: Connection, dispatches: Sequence[int], seconds: float = 120) -> None:
    _until(
        connection,
        "select bool_and(ended_at is not null) from autofill.dispatch where id = any(%s)",
        list(dispatches),
        seconds=seconds,
    )


class WorkSize:
    """The largest size `work` had, with its indexes, in MB; sampled ten times a second until closed."""

    def __init__(self, url: str) -> None:
        self.largest = 0.0
        self._url = url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> "WorkSize":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        with connect(self._url, application="benchmark size") as connection:
            while not self._over.wait(0.1):
                (size,) = connection.execute("select pg_total_relation_size('autofill.work')").fetchone() or (0,)
                self.largest = max(self.largest, size / 1e6)


def note(text: str) -> None:
    """Progress, for people."""
    print(f"bench {time.strftime('%X')}: {text}", file=sys.stderr, flush=True)


def _work(url: str, stopping: Event, started: "SimpleQueue[tuple[str, float]] | None", pool: str) -> None:
    NoopKind.started = started

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        threading.Thread(target=lambda: (stopping.wait(), loop.call_soon_threadsafe(stop.set)), daemon=True).start()
        await run_worker(url, job_types=[pool], grace=2.0, stop=stop)

    asyncio.run(main())


def _until(connection: Connection, query: str, *parameters: object, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while True:
        (reached,) = connection.execute(query.encode(), parameters).fetchone() or (False,)
        if reached:
            return
        if time.monotonic() > deadline:
            sys.exit(f"benchmark: not within {seconds} s: {query} {parameters}")
        time.sleep(0.01)
