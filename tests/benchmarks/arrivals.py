"""What arrivals cost: thousands of small files at once, and a tick of each sensor among thousands of partitions.

A tick is taken with what the daemon does with it: events written one by one, partitions, the cursor. Dagster's storage
is on PostgreSQL, as in production.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from autofill_defs.changes import changes
from autofill_defs.defined import DefinedCollection
from autofill_defs.followup import followup
from autofill_defs.instance import environment, prepare_instance
from autofill_defs.janitor import janitor
from autofill_defs.sensors import build_inbox_sensor
from cell_engine.embedded.server import Server
from cell_engine.settings import get_settings
from cell_engine.specs.compile import compile_text
from cell_engine.store.batches import count_batches
from cell_engine.store.collections import find_collection, load_version
from cell_engine.store.database import Connection, connect
from tests.benchmarks.bench import Figure, migrated, note

FILES = 5_000
PARTITIONS = 2_000
NEW = 400  # of them, which no partition is of yet
EDITED = 300  # rows, each in a batch of its own
LIMIT = 60.0  # seconds: Dagster's own for a tick, unless it is told otherwise
SPEC = """
namespace: bench
name: arrivals
columns:
  - {name: a, type: text}
  - {name: b, type: text, kind: function, deps: [a], function: {name: "tests.functions:upper"}}
"""


def figures(server: Server) -> Iterator[Figure]:
    url = migrated(server, "arrivals")
    home = Path(tempfile.mkdtemp(prefix="autofill-arrivals-"))
    try:
        with _instance(url, home) as instance, connect(url, application="benchmark") as connection:
            defined = DefinedCollection(compile_text(SPEC), home / "inbox")
            yield from _drop(instance, connection, defined)
            yield from _ticks(instance, connection, defined)
    finally:
        shutil.rmtree(home)


def _drop(instance: dg.DagsterInstance, connection: Connection, defined: DefinedCollection) -> Iterator[Figure]:
    """All of them at once, and looked at until they are in."""
    defined.inbox.mkdir()
    sensor = build_inbox_sensor(defined)
    _, cursor = _tick(instance, sensor, None)
    for number in range(FILES):
        (defined.inbox / f"{number:05d}.csv").write_text(f"a\nfirst {number}\nsecond {number}\n")
    times = []
    collection = find_collection(connection, defined.full_name)
    while len(times) < 20:
        seconds, cursor = _tick(instance, sensor, cursor)
        times.append(seconds)
        found = connection.execute("select count(*) as rows from autofill.row").fetchone()
        assert found is not None
        if found.rows == 2 * FILES:
            break
    _, cursor = _tick(instance, sensor, cursor)
    batches, _ = count_batches(connection, collection.id)
    more = {"files": FILES, "ticks": len(times), "bytes of cursor": len(cursor or "")}
    yield Figure("small files dropped at once, batches", [batches], "batches", 5, True, more)
    yield Figure("small files dropped at once, longest tick", [max(times)], "s", LIMIT, True, more)
    shutil.rmtree(defined.inbox)


def _ticks(instance: dg.DagsterInstance, connection: Connection, defined: DefinedCollection) -> Iterator[Figure]:
    """With thousands of batches that came by hand: the first tick that finds them, one when nothing is new, one with a
    file, and one that reports as many edits as it may."""
    collection = find_collection(connection, defined.full_name)
    version = load_version(connection, collection.id)
    defined.inbox.mkdir(exist_ok=True)
    _fill(connection, collection.id, version.by_name["a"].id)
    sensor = build_inbox_sensor(defined)
    cursor = None
    times = []
    instance.add_dynamic_partitions(defined.full_name, [f"batch {number}" for number in range(1, PARTITIONS - NEW + 1)])
    while len(instance.get_dynamic_partitions(defined.full_name)) < PARTITIONS:
        seconds, cursor = _tick(instance, sensor, cursor)
        times.append(seconds)
    note(f"{PARTITIONS} partitions are there")
    more = {"partitions": PARTITIONS, "ticks": len(times)}
    yield Figure("a tick that makes batches known, 2,000 partitions, longest", [max(times)], "s", LIMIT, True, more)
    idle, cursor = _tick(instance, sensor, cursor)
    yield Figure("an idle tick of the inbox, 2,000 partitions", [idle], "s", LIMIT / 10, True)
    (defined.inbox / "one.csv").write_text("a\none\n")
    _, cursor = _tick(instance, sensor, cursor)
    one, cursor = _tick(instance, sensor, cursor)
    yield Figure("a tick that loads a file, 2,000 partitions", [one], "s", LIMIT, True)

    _, cursor = _tick(instance, changes, None)
    connection.execute(
        "insert into autofill.dispatch (collection_id, signal, reason, actor, columns, force, total, version) "
        "select %s, nextval('autofill.signal'), 'edit', 'benchmark', '{}', false, 1, 1 from generate_series(1, %s)",
        [collection.id, EDITED],
    )
    connection.execute(
        "insert into autofill.completion (dispatch_id, collection_id, batch_id, column_id, outcome, row_ids) "
        "select dispatch.id, batch.collection_id, batch.id, %s, 'ready', array[batch.first_row] from ("
        "select id, row_number() over () as number from autofill.dispatch where actor = 'benchmark') as dispatch "
        "join (select *, row_number() over () as number from autofill.batch) as batch using (number)",
        [version.by_name["b"].id],
    )
    connection.execute("update autofill.dispatch set ended_at = clock_timestamp() where ended_at is null")
    seconds, cursor = _tick(instance, changes, cursor)
    yield Figure("a tick of changes with 300 events, 2,000 partitions", [seconds], "s", LIMIT, True)
    for name, other in (("changes", changes), ("followup", followup), ("janitor", janitor)):
        seconds, _ = _tick(instance, other, cursor if other is changes else None)
        yield Figure(f"an idle tick of {name}, 2,000 partitions", [seconds], "s", LIMIT / 10, True)


def _fill(connection: Connection, collection_id: int, column: int) -> None:
    connection.execute(
        "insert into autofill.batch (collection_id, id, key, source, first_row, last_row, actor) "
        "select %s, 100 + n, 'batch ' || n, 'by hand', 1000000 + n, 1000000 + n, 'benchmark' "
        "from generate_series(1, %s) as n",
        [collection_id, PARTITIONS],
    )
    connection.execute(
        "insert into autofill.row (collection_id, row_id, batch_id, inputs) "
        "select %s, 1000000 + n, 100 + n, jsonb_build_object(%s::text, n::text) from generate_series(1, %s) as n",
        [collection_id, column, PARTITIONS],
    )


def _tick(instance: dg.DagsterInstance, sensor: dg.SensorDefinition, cursor: str | None) -> tuple[float, str | None]:
    """Seconds of a tick and of what the daemon does with it; and its cursor."""
    began = time.monotonic()
    result = sensor(dg.build_sensor_context(instance=instance, cursor=cursor))
    if isinstance(result, dg.SensorResult):
        for event in result.asset_events:
            instance.report_runless_asset_event(event)
        for request in result.dynamic_partitions_requests or ():
            instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
        cursor = result.cursor
    return time.monotonic() - began, cursor


@contextmanager
def _instance(url: str, home: Path) -> Iterator[dg.DagsterInstance]:
    before = dict(os.environ)
    os.environ["AUTOFILL_HOME"] = str(home)
    try:
        settings = get_settings()
        prepare_instance(settings, url)
        os.environ |= environment(settings, url)
        with dg.DagsterInstance.get() as instance:
            yield instance
    finally:
        os.environ.clear()
        os.environ |= before
