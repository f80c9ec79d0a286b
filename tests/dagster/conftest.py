"""A code location of the test's own: one collection on real PostgreSQL, and a Dagster instance in memory."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run

from autofill_defs.assets import build_assets
from autofill_defs.defined import DefinedCollection
from autofill_defs.sensors import build_inbox_sensor
from cell_engine.specs.compile import compile_text
from cell_engine.store.applying import apply
from cell_engine.store.batches import add_batch
from cell_engine.store.collections import find_collection, load_version
from cell_engine.store.database import Connection

SPEC = """
namespace: test
name: table
columns:
  - {name: a, type: text}
  - {name: b, type: text, kind: function, deps: [a], function: {name: "tests.functions:upper"}}
  - {name: c, type: text, kind: function, deps: [b], function: {name: "tests.functions:upper_b"}}
  - {name: n, type: integer, kind: function, deps: [a], function: {name: "tests.functions:length"}}
"""


@dataclass
class Location:
    """The code location of one collection."""

    defined: DefinedCollection
    instance: dg.DagsterInstance
    connection: Connection
    materialized: dict[tuple[str, str], dict[str, object]] = field(default_factory=dict)
    """Of the last run: metadata by column and partition."""

    @property
    def job(self) -> dg.JobDefinition:
        return build_assets(self.defined).resolve_job_def(self.defined.identifier)

    def load(self, *keys: str, rows: int = 3) -> None:
        """Batches of `rows` rows, as the sensor would leave them: loaded, not asked for, and known to Dagster."""
        apply(self.connection, self.defined.spec, actor="test")
        collection = find_collection(self.connection, self.defined.full_name)
        version = load_version(self.connection, collection.id)
        for key in keys:
            texts = [{version.by_name["a"].id: f"{key} {number}"} for number in range(rows)]
            add_batch(self.connection, version, key, texts, source=key, actor="test", demand=False)
        self.instance.add_dynamic_partitions(self.defined.full_name, list(keys))

    def create_run(
        self,
        first: str,
        last: str,
        columns: Sequence[str] = ("b", "c", "n"),
        parent: dg.DagsterRun | None = None,
        **config: object,
    ) -> dg.DagsterRun:
        """A run that has not begun. With `parent` as Dagster makes it of a retry or a Re-execute: tags come along."""
        tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
        keys = {self.defined.column_key(name) for name in columns}
        if parent is not None:
            parent = self.instance.get_run_by_id(parent.run_id)
            assert parent is not None
            copied = {key: value for key, value in parent.tags.items() if key != "dagster/failure_reason"}
            tags = copied | tags
        return self.instance.create_run_for_job(
            self.job.get_subset(asset_selection=keys),
            run_config={"ops": {f"fill_{self.defined.identifier}": {"config": config}}},
            tags=tags,
            asset_selection=keys,
            parent_run_id=parent.run_id if parent is not None else None,
            root_run_id=(parent.root_run_id or parent.run_id) if parent is not None else None,
        )

    def execute(self, run: dg.DagsterRun, job: dg.JobDefinition | None = None) -> bool:
        """Execute a run to its end; returns whether it succeeded."""
        job = job or self.job.get_subset(asset_selection=set(run.asset_selection or ()))
        result = execute_run(InMemoryJob(job), run, self.instance)
        self.materialized = {}
        for event in self.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION):
            assert event.dagster_event is not None
            materialization = event.dagster_event.step_materialization_data.materialization
            name, partition = materialization.asset_key.path[-1], str(materialization.partition)
            assert (name, partition) not in self.materialized, "reported twice"
            self.materialized[name, partition] = {key: one.value for key, one in materialization.metadata.items()}
        return result.success

    def run(self, first: str, last: str, **options: object) -> tuple[dg.DagsterRun, bool]:
        run = self.create_run(first, last, **options)  # type: ignore[arg-type]
        success = self.execute(run)
        return self.reread(run), success

    def run_batches(self, *batches: str, **config: object) -> tuple[dg.DagsterRun, bool]:
        """A run of the job that takes any set of batches."""
        name = f"{self.defined.identifier}__batches"
        job = build_assets(self.defined).resolve_job_def(name)
        asked = {"batches": list(batches), **config}
        run = self.instance.create_run_for_job(job, run_config={"ops": {f"fill_{name}": {"config": asked}}})
        success = self.execute(run, job)
        return self.reread(run), success

    def reread(self, run: dg.DagsterRun) -> dg.DagsterRun:
        found = self.instance.get_run_by_id(run.run_id)
        assert found is not None
        return found

    def dispatches(self) -> list[tuple[int, str | None]]:
        """Those made by runs: id and key."""
        found = self.connection.execute(
            "select id, key from autofill.dispatch where reason = 'run' order by id"
        ).fetchall()
        return [(one.id, one.key) for one in found]

    def messages(self, run: dg.DagsterRun) -> list[str]:
        """What the run logged."""
        return [entry.user_message for entry in self.instance.all_logs(run.run_id)]

    def tick(self, cursor: str | None) -> dg.SensorResult:
        context = dg.build_sensor_context(instance=self.instance, cursor=cursor)
        result = build_inbox_sensor(self.defined)(context)
        assert isinstance(result, dg.SensorResult)
        return result

    def land(self, result: dg.SensorResult) -> str | None:
        """What the daemon does with a tick, in its order; returns the cursor."""
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        for request in result.dynamic_partitions_requests or ():
            assert isinstance(request, dg.AddDynamicPartitionsRequest)
            self.instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)
        return result.cursor


Locate = Callable[[str], Location]


@pytest.fixture
def locate(database: str, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Locate]:
    """`locate(yaml)` is the code location of that collection, all on one Dagster instance."""
    monkeypatch.setenv("AUTOFILL_DATABASE_URL", database)
    monkeypatch.setenv("AUTOFILL_HOME", str(tmp_path))
    with dg.DagsterInstance.ephemeral() as instance:
        yield lambda spec: Location(DefinedCollection(compile_text(spec), tmp_path / "inbox"), instance, connection)


@pytest.fixture
def location(locate: Locate) -> Location:
    return locate(SPEC)


@contextmanager
def beside(function: Callable[[], None]) -> Iterator[None]:
    """Run `function` in a thread beside the block; its exceptions are the block's."""
    raised: list[BaseException] = []

    def body() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 (raised again below)
            raised.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    try:
        yield
    finally:
        thread.join(60)
    if raised:
        raise raised[0]
