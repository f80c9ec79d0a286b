"""What Dagster itself costs: the rows of a run, the time of its bookkeeping, the wait for a page of many partitions.

Runs are executed in this process, on an instance as `dagster.yaml` has it (PostgreSQL, batches), without what captures
their output. Bookkeeping is a run's time, from its creation to its end, less that of its dispatch.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import psycopg
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from dagster_graphql.test.utils import define_out_of_process_workspace, execute_dagster_graphql
from psycopg import sql

from autofill_defs.assets import build_assets
from autofill_defs.defined import DefinedCollection
from autofill_defs.instance import URL_VARIABLE, with_driver
from cell_engine.embedded import ensure_database
from cell_engine.embedded.server import Server
from cell_engine.specs.compile import compile_text
from cell_engine.store.collections import load_version
from cell_engine.store.database import Connection, connect
from tests.benchmarks.bench import ROUNDS, Figure, Sheet, fill, migrated, note, workers
from tests.benchmarks.noop import JOB_TYPE
from tests.dagster.conftest import Location

COLUMNS = ("c1", "c2", "c3")
BATCHES, PARTITIONS = 1_000, 2_000
FEW, MANY, SAME_BATCHES = 1_000, 100_000, 10
FILES = 100

# As the page of an asset sends them, by their names there, with the fields that cost something.
QUERIES = {
    "PartitionHealthQuery": """assetNodeOrError(assetKey: $asset) { ... on AssetNode {
        partitionKeysByDimension { name type partitionKeys }
        assetPartitionStatuses {
            ... on DefaultPartitionStatuses { materializedPartitions materializingPartitions failedPartitions }
        } } }""",
    "AssetGraphLiveQuery": """assetNodes(
        assetKeys: [$asset], loadMaterializations: true
    ) {
        assetMaterializations(limit: 1) { timestamp runId } staleStatus staleCauses { reason }
        partitionStats { numMaterialized numMaterializing numPartitions numFailed }
    }
    assetsLatestInfo(assetKeys: [$asset]) {
        unstartedRunIds inProgressRunIds latestRun { id status endTime }
    }""",
    "RecentAssetEventsQuery": """assetOrError(assetKey: $asset) { ... on Asset { assetEventHistory(
        limit: 100, eventTypeSelectors: [MATERIALIZATION, OBSERVATION, FAILED_TO_MATERIALIZE]
    ) { cursor results { ... on MaterializationEvent {
        runId partition timestamp tags { key value } metadataEntries { __typename label description }
    } } } } }""",
    "AssetPartitionDetailQuery": """assetOrError(assetKey: $asset) { ... on Asset {
        definition { latestRunForPartition(partition: $partition) { id status endTime } }
        assetEventHistory(
            partitions: [$partition], limit: 1000,
            eventTypeSelectors: [MATERIALIZATION, OBSERVATION, FAILED_TO_MATERIALIZE]
        ) { results { ... on MaterializationEvent { runId metadataEntries { __typename label } } } } } }""",
    "AssetPartitionStaleQuery": """assetNodeOrError(assetKey: $asset) { ... on AssetNode {
        staleStatus(partition: $partition) staleCauses(partition: $partition) { reason } } }""",
}


def spec(name: str, columns: tuple[str, ...] = COLUMNS) -> str:
    lines = ["namespace: space", f"name: {name}", "columns:", "  - {name: a, type: text}"]
    lines += [f"  - {{name: {column}, type: text, kind: {JOB_TYPE}, deps: [a]}}" for column in columns]
    return "\n".join(lines)


def defined(name: str, columns: tuple[str, ...] = COLUMNS) -> DefinedCollection:
    return DefinedCollection(compile_text(spec(name, columns)), Path(os.environ.get("AUTOFILL_HOME", "/nowhere"), name))


location = build_assets(defined("wide"))
"""What the code server of the GraphQL figures loads."""


def figures(server: Server) -> Iterator[Figure]:
    url = migrated(server, "dagster_engine")
    with (
        _instance(url, with_driver(ensure_database(server, "dagster"))) as instance,
        connect(url, application="benchmark") as connection,
        workers(url),
    ):
        yield _rows(instance, connection, server.dsn("dagster"))
        wide = _located(instance, connection, "wide", PARTITIONS, PARTITIONS)
        yield _bookkeeping(wide)
        yield from _pages(wide)
        yield _tick(wide)


@contextmanager
def _instance(url: str, dagster_url: str) -> Iterator[dg.DagsterInstance]:
    home = Path(tempfile.mkdtemp(prefix="autofill-bench-dagster-"))
    os.environ |= {"AUTOFILL_DATABASE_URL": url, "AUTOFILL_HOME": str(home), URL_VARIABLE: dagster_url}
    quiet = "module: dagster._core.storage.noop_compute_log_manager, class: NoOpComputeLogManager"
    ours = "custom: {module: autofill_defs.storage, class: InstanceStorage, config: {}}"
    lines = [f"storage: {{{ours}}}", f"compute_logs: {{{quiet}}}", "telemetry: {enabled: false}", "python_logs:"]
    (home / "dagster.yaml").write_text("\n".join([*lines, "  python_log_level: INFO", ""]))
    try:
        with dg.DagsterInstance.from_config(str(home)) as instance:
            yield instance
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _located(
    instance: dg.DagsterInstance,
    connection: Connection,
    name: str,
    rows: int,
    batches: int,
    columns: tuple[str, ...] = COLUMNS,
) -> Location:
    """A collection of that many rows in that many batches, each a partition."""
    made = Location(defined(name, columns), instance, connection)
    made.load()
    found = connection.execute("select id from autofill.collection where name = %s", [name]).fetchone()
    assert found is not None
    fill(connection, Sheet(found.id, load_version(connection, found.id)), rows, rows // batches)
    instance.add_dynamic_partitions(made.defined.full_name, [_key(number) for number in range(batches)])
    note(f"{rows} rows in {batches} batches are there")
    return made


def _key(number: int) -> str:
    return f"batch {number + 1}"


def _run(made: Location, batches: int, columns: tuple[str, ...] = COLUMNS, **config: object) -> tuple[str, float]:
    """The run's id, and the seconds that were not its dispatch's."""
    began = time.monotonic()
    run = made.create_run(_key(0), _key(batches - 1), columns, **config)
    keys = {made.defined.column_key(name) for name in columns}
    result = execute_run(InMemoryJob(made.job.get_subset(asset_selection=keys)), run, made.instance)
    seconds = time.monotonic() - began
    assert result.success
    asked = made.connection.execute(
        "select extract(epoch from ended_at - created_at)::float8 as seconds from autofill.dispatch "
        "where reason = 'run' order by id desc limit 1"
    ).fetchone()
    assert asked is not None
    note(f"a run over {batches} batches: {seconds:.1f} s, of which its dispatch {asked.seconds:.1f}")
    return run.run_id, seconds - asked.seconds


def _rows(instance: dg.DagsterInstance, connection: Connection, dsn: str) -> Figure:
    """Rows in all of Dagster's tables. Not the lines that say how far it is: there is one every few seconds."""
    ratios, counts, lines = [], [], []
    for number in range(ROUNDS):
        written = []
        for cells in (FEW, MANY):
            made = _located(instance, connection, f"cells{cells}_{number}", cells, SAME_BATCHES, COLUMNS[:1])
            before = _count(dsn)
            run_id, _ = _run(made, SAME_BATCHES, COLUMNS[:1])
            said = sum(entry.dagster_event is None for entry in instance.all_logs(run_id))
            written.append(_count(dsn) - before - said)
            lines.append(said)
        ratios.append(written[1] / written[0])
        counts.append(written)
    more = {"rows": counts[-1], "progress lines": lines}
    return Figure(f"Dagster's rows of a run over {MANY} cells, to those over {FEW}", ratios, "ratio", 1, True, more)


def _count(dsn: str) -> int:
    """Of everything but what each process that opens the instance writes for itself."""
    with psycopg.connect(dsn) as connection:
        names = [name for (name,) in connection.execute("select tablename from pg_tables where schemaname = 'public'")]
        total = 0
        # Assets and snapshots are of a collection's definition: its first run writes them.
        for name in set(names) - {"asset_keys", "snapshots", "kvs", "instance_info"}:
            found = connection.execute(sql.SQL("select count(*) from {}").format(sql.Identifier(name))).fetchone()
            assert found is not None
            total += found[0]
    return total


def _bookkeeping(made: Location) -> Figure:
    times = [_run(made, BATCHES)[1] for _ in range(ROUNDS)]
    return Figure(f"bookkeeping of a run over {BATCHES} batches × {len(COLUMNS)}", times, "s", 10, at_most=True)


def _pages(made: Location) -> Iterator[Figure]:
    _run(made, PARTITIONS)
    asset = f'{{path: ["space", "wide", "{COLUMNS[0]}"]}}'
    queries = {
        name: f"query {name} {{ {body.replace('$asset', asset).replace('$partition', json.dumps(_key(7)))} }}"
        for name, body in QUERIES.items()
    }
    times: dict[str, list[float]] = {name: [] for name in QUERIES}
    with define_out_of_process_workspace(__file__, "location", made.instance) as workspace:
        for _ in range(ROUNDS):
            for name, query in queries.items():
                context = workspace.create_request_context()
                began = time.monotonic()
                result = execute_dagster_graphql(context, query)
                times[name].append(time.monotonic() - began)
                assert not result.errors, result.errors
                if name == "PartitionHealthQuery":
                    statuses = result.data["assetNodeOrError"]["assetPartitionStatuses"]
                    assert len(statuses["materializedPartitions"]) == PARTITIONS
    each = {name: [round(one, 3) for one in found] for name, found in times.items()}
    totals = [sum(one) for one in zip(*times.values(), strict=True)]
    name = f"the queries of an asset's page with {PARTITIONS} partitions, one after the other"
    yield Figure(name, totals, "s", 2, at_most=True, more=each)


def _tick(made: Location) -> Figure:
    """The look that loads a tick's fill of new files, beside the partitions there are."""
    made.defined.inbox.mkdir(parents=True)
    times, cursor = [], None
    for number in range(ROUNDS):
        for file in range(FILES):
            (made.defined.inbox / f"new-{number}-{file}.csv").write_text(f"a\nvalue {number} {file}\n")
        for _ in range(2):
            began = time.monotonic()
            result = made.tick(cursor)
            seconds = time.monotonic() - began
            cursor = made.land(result)
        assert result.dynamic_partitions_requests, "nothing was loaded"
        times.append(seconds)
    return Figure(
        f"a sensor's tick that loads {FILES} files beside {PARTITIONS} partitions", times, "s", 60, at_most=True
    )
