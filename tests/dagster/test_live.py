"""What a data engineer does in a day, over GraphQL: each step is asked of Dagster's answer and of the cells."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from autofill_defs.instance import INSTANCE_FILE
from cell_engine.specs.compile import compile_text
from cell_engine.store.applying import apply
from cell_engine.store.batches import add_batch, find_batches
from cell_engine.store.collections import find_collection, load_version
from cell_engine.store.database import Connection
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import page, partition_outcomes
from tests.dagster.live import Live, calls_by, dispatch_of, health, running, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROWS = 40
FEW = 5
PACKAGES = ("demo", "packages")
COLUMNS = ("summary", "audience", "licence_family", "words")
BATCHES = ("b1", "b2", "b3", "b4")
WORDS = 'kind: function, deps: [readme], function: {name: "cell_engine.demo.functions:word_count"}'
CRON = f"\n  - {{name: refreshed, type: integer, mode: cron, cron: '* * * * *', {WORDS}}}\n"
SCHEDULE = "demo__packages__refreshed__cron"
NEW = f"  - {{name: length, type: integer, {WORDS}}}\n"
COLLECTION = INSTANCE_FILE.with_name("collections") / "packages.yaml"


@pytest.fixture
def live(database: str, tmp_path: Path) -> Iterator[Live]:
    try:
        with running(tmp_path, database, COLLECTION.read_text() + CRON) as live:
            yield live
    finally:
        with psycopg.connect(database, autocommit=True) as connection:
            name = f"{connection.info.dbname}_dagster"
            connection.execute(f'drop database if exists "{name}" with (force)'.encode())


def csv(first: int, rows: int) -> str:
    lines = [f'package-{first + row},1.0,MIT,"Package {first + row} parses dates. It is fast."' for row in range(rows)]
    return "\n".join(["name,version,licence,readme", *lines]) + "\n"


def load_unasked(connection: Connection) -> None:
    """Batches that nobody has asked to compute yet."""
    apply(connection, compile_text(COLLECTION.read_text() + CRON), actor="test")
    version = load_version(connection, find_collection(connection, "demo/packages").id)
    for number, key in enumerate(BATCHES):
        texts = {
            "name": f"{key}-{{}}",
            "licence": "MIT",
            "readme": f"Number {number} of {{}} parses dates. It is fast.",
        }
        rows = [{version.by_name[name].id: text.format(row) for name, text in texts.items()} for row in range(FEW)]
        add_batch(connection, version, key, rows, source=key, actor="test", demand=False)


def cells(connection: Connection, *batches: str) -> dict[str, Counter[str]]:
    """How many cells have which status in these batches, by column."""
    collection = find_collection(connection, "demo/packages")
    version = load_version(connection, collection.id)
    found: dict[str, Counter[str]] = {}
    for batch in find_batches(connection, collection.id, batches):
        for one in page(connection, collection.id, after=batch.first_row - 1, limit=batch.rows)[1]:
            found.setdefault(version.by_id[one.column_id].name, Counter())[one.status] += 1
    return found


def touched(connection: Connection, run: dict[str, Any]) -> set[str]:
    return {one.batch for one in partition_outcomes(connection, dispatch_of(run))}


def reported(live: Live, column: str, run_id: str) -> list[str]:
    """The partitions of a column that a run materialized."""
    return sorted(one["partition"] for one in live.materializations(*PACKAGES, column) if one["run"] == run_id)


def of_run(live: Live, run_id: str) -> dict[str, list[str]]:
    return {column: reported(live, column, run_id) for column in COLUMNS}


def filled(connection: Connection, *batches: str) -> dict[str, Counter[str]]:
    return {column: counts for column, counts in cells(connection, *batches).items() if column in COLUMNS}


def alike(one: object) -> dict[str, object]:
    return dict.fromkeys(COLUMNS, one)


def runless(live: Live, column: str, why: str) -> list[dict[str, Any]]:
    """Materializations of a column by the changes sensor, for dispatches of that reason."""
    found = [one for one in live.materializations(*PACKAGES, column) if one["metadata"].get("reported_by") == "changes"]
    assert all(one["run"] == "" for one in found)
    return [one for one in found if f"{why} by" in one["metadata"]["asked_for"]]


def test_a_day_of_a_data_engineer(live: Live, connection: Connection) -> None:
    inbox = live.home / "inbox" / "demo" / "packages"
    inbox.mkdir(parents=True)
    (inbox / "first.csv").write_text(csv(0, ROWS))
    (inbox / "bad.csv").write_bytes(b"name\n\xe9t\xe9\n")
    load_unasked(connection)

    # A file becomes a batch, and a run, which waits: there is no worker yet.
    until(lambda: live.runs("demo__packages"))
    [run] = live.runs("demo__packages")
    run = live.reaches(run["runId"], "STARTED")
    [first] = set(live.partitions(*PACKAGES, "words")) - set(BATCHES)
    assert live.partitions(*PACKAGES, "words") == [*BATCHES, first]
    assert filled(connection, first) == alike({"queued": ROWS})

    # A new column: the code location is reloaded, which interrupts no run, and the asset is there.
    assert (*PACKAGES, "words") in live.assets() and (*PACKAGES, "length") not in live.assets()
    live.collection.write_text(live.collection.read_text() + NEW)
    live.reload()
    assert live.partitions(*PACKAGES, "length") == [*BATCHES, first]
    assert live.run(run["runId"])["status"] == "STARTED"

    # Asked for meanwhile: batches with a hole between them, in one dispatch by the op-job, and as a backfill.
    sparse = live.launch("demo__packages__batches", {"batches": ["b2", "b4"], "columns": list(COLUMNS)})
    backfill = live.backfill([(*PACKAGES, column) for column in COLUMNS], ["b1", "b3"])

    # A run is terminated, its dispatch is not; the run that repeats it waits for it again.
    live.terminate(run["runId"])
    live.reaches(run["runId"], "CANCELED")
    again = live.reaches(live.repeat(run["runId"]), "STARTED")
    assert dispatch_of(again) == dispatch_of(run)
    (inbox / "second.csv").write_text(csv(ROWS, FEW))
    known = {run["runId"], again["runId"]}

    ports = live.work(("llm",), ("llm",), ("fetch",), ("function",))
    live.reaches(again["runId"], "SUCCESS")
    assert filled(connection, first) == alike({"ready": ROWS})
    assert of_run(live, again["runId"]) == alike([first])
    observations = live.ask(
        "query($key: AssetKeyInput!) { assetOrError(assetKey: $key) "
        "{ ... on Asset { assetObservations { description } } } }",
        key={"path": [*PACKAGES, "rows"]},
    )["assetObservations"]
    # Once more for each definition: it might have been at fault.
    assert {one["description"].split(":")[0] for one in observations} == {"bad.csv was not loaded"}
    assert health(live.janitor, "ready") == health(live.janitor, "live") == "ok\n"

    done = live.reaches(sparse, "SUCCESS")
    assert touched(connection, done) == {"b2", "b4"}
    assert of_run(live, sparse) == alike(["b2", "b4"])
    assert filled(connection, "b2", "b4") == alike({"ready": 2 * FEW})

    # The plain way: a file is dropped, and nobody does anything.
    asked = until(lambda: next((one for one in live.runs("demo__packages") if one["runId"] not in known), None))
    plain = live.reaches(asked["runId"], "SUCCESS")
    [second] = set(live.partitions(*PACKAGES, "words")) - {*BATCHES, first}
    assert of_run(live, plain["runId"]) == alike([second])
    assert filled(connection, second) == alike({"ready": FEW})

    # To execute again what has succeeded asks again, and finds all of it fresh.
    fresh = live.reaches(live.repeat(plain["runId"]), "SUCCESS")
    assert dispatch_of(fresh) != dispatch_of(plain)
    assert {tuple(one.outcomes) for one in partition_outcomes(connection, dispatch_of(fresh))} == {("fresh",)}

    # What no run has asked for is shown without one: the new column's cells, and an edit with what follows from it.
    every = [*BATCHES, first, second]
    row = find_batches(connection, find_collection(connection, "demo/packages").id, [second])[0].first_row
    live.autofill("edit", "demo/packages", str(row), "readme=It sends mail, and nothing else.", "--wait")
    assert filled(connection, second) == alike({"ready": FEW})
    until(lambda: cells(connection, *every)["length"] == {"ready": ROWS + 5 * FEW})
    until(lambda: {one["partition"] for one in runless(live, "length", "apply")} == {*BATCHES, first})
    for column in ("summary", "words"):
        until(lambda column=column: [one["partition"] for one in runless(live, column, "edit")] == [second])
    assert runless(live, "licence_family", "edit") == []

    # The backfill is two runs, since there is a hole; the daemon sees to it every half minute.
    until(lambda: live.backfill_status(backfill) == "COMPLETED_SUCCESS")
    ranges = {run["runId"]: run["tags"]["dagster/asset_partition_range_start"] for run in live.runs_of(backfill)}
    assert sorted(ranges.values()) == ["b1", "b3"]
    for run_id, batch in ranges.items():
        assert of_run(live, run_id) == alike([batch])
    assert filled(connection, "b1", "b3") == alike({"ready": 2 * FEW})

    # The clock has ticked meanwhile: once a minute, over all rows.
    [tick] = until(lambda: [one for one in live.ticks(SCHEDULE) if one["status"] == "SUCCESS"][-1:])
    ticked = live.reaches(tick["runIds"][0], "SUCCESS")
    assert set(reported(live, "refreshed", ticked["runId"])) == touched(connection, ticked) >= {*BATCHES}
    until(lambda: cells(connection, *BATCHES)["refreshed"] == {"ready": 4 * FEW})  # the next tick may be at work

    # Each pool of workers has computed its own, and all together each cell once.
    pools = {name: calls_by(port) for name, port in ports.items()}
    live.rest()
    assert {job_type for name in ("worker 0", "worker 1") for job_type in pools[name]} == {"llm"}
    # The edited row once more: what reads the readme, and what reads that.
    assert sum((pools["worker 0"] + pools["worker 1"]).values()) == 3 * (ROWS + 5 * FEW) + 2
    assert (pools["worker 2"], set(pools["worker 3"])) == (Counter(), {"function"})
    assert broken_rules(connection) == {}
